/* Ctrl-C: the first ends the run at the next token, the second at once. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t flag;

static void on_signal(int number) {
	(void)number;
	flag = 1;
}

void interrupt_install(void) {
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_signal;
	action.sa_flags = (int)SA_RESETHAND;
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

bool interrupted(void) { return flag != 0; }

bool interrupt_abort(void *user) {
	(void)user;
	return flag != 0;
}
