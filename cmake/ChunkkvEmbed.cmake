# A file's bytes as a C array, so that an installed program needs no data folder. Run as a script it writes the C file.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${INPUT} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
  file(WRITE ${OUTPUT}.part "#include <${HEADER}>\n\nconst unsigned char ${SYMBOL}[] = {\n${bytes}\n};\n"
    "const size_t ${SYMBOL}_size = ${size};\n")
  file(RENAME ${OUTPUT}.part ${OUTPUT})
  return()
endif()

set(chunkkv_embed_script ${CMAKE_CURRENT_LIST_FILE})

# Adds to a target the file's bytes as SYMBOL[] and SYMBOL_size, which HEADER declares.
function(chunkkv_embed target file symbol header)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.c)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${file} -DOUTPUT=${output} -DSYMBOL=${symbol} -DHEADER=${header} -P ${chunkkv_embed_script}
    DEPENDS ${file} ${chunkkv_embed_script} VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
