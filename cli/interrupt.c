/* Ctrl-C: the first ends what is being done at the next token, the second the program at once. */
#define _POSIX_C_SOURCE 200809L
#include "cli.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t flag; /* the signal's number */

static void on_signal(int number) { flag = flag == SIGTERM ? SIGTERM : number; }

void interrupt_install(void) {
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_signal;
	action.sa_flags = (int)SA_RESETHAND;
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

bool interrupt_forget(void) {
	bool ends = flag == SIGTERM;
	if (!ends) {
		flag = 0;
		interrupt_install(); /* it goes after each signal */
	}
	return !ends;
}

bool interrupted(void) { return flag != 0; }

bool interrupt_abort(void *user) {
	(void)user;
	return flag != 0;
}
