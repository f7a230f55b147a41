/* One clear line on standard error. */
#include "cli.h"

#include <stdarg.h>

int fail(const char *format, ...) {
	va_list args;
	va_start(args, format);
	fputs("chunkkv: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return EXIT_FAILED;
}
