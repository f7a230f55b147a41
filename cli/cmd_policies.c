/* chunkkv policies: what there is, from the registry itself. */
#include "cli.h"

#include <string.h>

static void show(const char *title, const ckv_method_info *(*at)(size_t)) {
	printf("%s\n", title);
	for (size_t i = 0; at(i); i++) {
		printf("  %-10s %s%s%s%s\n", at(i)->name, at(i)->summary, at(i)->paper[0] ? " (" : "", at(i)->paper,
		       at(i)->paper[0] ? ")" : "");
	}
}

static void show_uses(const char *kind, const ckv_method_info *(*at)(size_t), const char *key) {
	for (size_t i = 0; at(i); i++) {
		const char *found = strstr(at(i)->uses, key);
		if (found) {
			printf(" %s %s", kind, at(i)->name);
		}
	}
}

static void show_presets(void) {
	puts("policies (--policy NAME[:key=value,...])");
	for (size_t i = 0; ckv_preset_info(i); i++) {
		const ckv_method_info *info = ckv_preset_info(i);
		ckv_params p;
		if (ckv_policy_parse(info->name, &p, NULL)) {
			continue;
		}
		printf("  %-10s %s%s%s%s\n", info->name, info->summary, info->paper[0] ? " (" : "", info->paper,
		       info->paper[0] ? ")" : "");
		printf("  %-10s   scorer=%s selector=%s window=%d kernel=%d chunk=%d sinks=%d\n", "", p.scorer, p.selector, p.window,
		       p.kernel, p.chunk, p.sinks);
	}
}

int cmd_policies(int argc, char **argv) {
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		puts("usage: chunkkv policies\n\nLists policies, scorers, selectors and parameters.");
		return 0;
	}
	if (argc > 1) {
		fail("chunkkv policies takes no '%s'", argv[1]);
		return EXIT_USAGE;
	}
	show_presets();
	show("\nscorers", ckv_scorer_info);
	show("\nselectors", ckv_selector_info);
	puts("\nparameters");
	for (size_t i = 0; ckv_param_info_at(i); i++) {
		const ckv_param_info *info = ckv_param_info_at(i);
		printf("  %-10s %s", info->key, info->summary);
		if (info->maximum) {
			printf("; %d to %d", info->minimum, info->maximum);
		}
		fputs("\n             read by", stdout);
		if (strcmp(info->key, "scorer") == 0 || strcmp(info->key, "selector") == 0) {
			fputs(" every policy", stdout);
		}
		show_uses("scorer", ckv_scorer_info, info->key);
		show_uses("selector", ckv_selector_info, info->key);
		putchar('\n');
	}
	return 0;
}
