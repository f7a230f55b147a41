/* The table of all commands' options. */
#ifndef CKV_CLI_OPTIONS_H
#define CKV_CLI_OPTIONS_H

#include "cli.h"

#include <stddef.h>

typedef enum kind { HELP, SWITCH, TEXT, QUESTION, PIN, POLICY, WHOLE, NUMBER, SEED } kind;

/* An option: who takes it, where its value goes, what is said of it. One name may have rows for different commands. */
typedef struct option_entry {
	const char *name, *argument; /* no argument: a switch */
	char letter;                 /* 0: no short form */
	int commands;
	int group; /* in the help text, an empty line between */
	kind kind;
	size_t field; /* in run_options; its type goes with the kind */
	double low, high;
	const char *help, *help_chat; /* lines; the second where chat has its own words */
} option_entry;

enum { MAX_ENTRIES = 64 };
extern const option_entry option_entries[];
extern const int n_option_entries; /* below MAX_ENTRIES */

#endif
