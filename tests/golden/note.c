#include "note.h"

#include <stdarg.h>
#include <stdio.h>

bool note_set(note *why, const char *format, ...) {
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(why->text, sizeof why->text, format, arguments);
	va_end(arguments);
	return false;
}
