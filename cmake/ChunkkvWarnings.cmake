# Warnings, sanitizers and hardening, for every target of ours.
function(chunkkv_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -fno-common -fstack-protector-strong)
  if(CHUNKKV_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${CHUNKKV_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_definitions(${target} PRIVATE _FORTIFY_SOURCE=2)
  endif()
endfunction()

if(CHUNKKV_SANITIZE)
  add_link_options(-fsanitize=${CHUNKKV_SANITIZE})
else()
  add_link_options(-Wl,-z,relro,-z,now -Wl,--as-needed)
endif()
