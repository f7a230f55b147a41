/* chunkkv: the command. */
#include "cli.h"

#include <string.h>

typedef struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} command;

static const command commands[] = {
    {"run", cmd_run, "answer a question from a document, with a compressed cache"},
    {"chat", cmd_chat, "a conversation of any length, in a cache of fixed size"},
    {"eval", cmd_eval, "what compressed caches lose, measured: tables, records and a page"},
    {"inspect", cmd_inspect, "which tokens policies keep of a document, and what each layer loses by it: a page"},
    {"policies", cmd_policies, "list policies, their parts and parameters"},
};

static void usage(FILE *out) {
	fputs("chunkkv: smaller KV caches for llama.cpp\n\nusage: chunkkv COMMAND [OPTION ...]\n\n", out);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	}
	fputs("\nchunkkv COMMAND --help tells more; chunkkv --version tells the version.\n", out);
}

int main(int argc, char **argv) {
	if (argc < 2) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		usage(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("chunkkv %d.%d.%d\n", CKV_VERSION_MAJOR, CKV_VERSION_MINOR, CKV_VERSION_PATCH);
		return 0;
	}
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		if (strcmp(argv[1], commands[i].name) == 0) {
			return commands[i].run(argc - 1, argv + 1);
		}
	}
	fail("there is no command '%s'", argv[1]);
	usage(stderr);
	return EXIT_USAGE;
}
