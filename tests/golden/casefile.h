/* One case: a folder, its case.json and the arrays that this names. */
#ifndef GOLDEN_CASEFILE_H
#define GOLDEN_CASEFILE_H

#include "note.h"
#include "npy.h"

#include <jansson.h>
#include <stdint.h>

typedef struct casefile {
	const char *folder; /* borrowed */
	json_t *root;       /* an object */
	const char *kind;   /* borrowed from root */
} casefile;

bool casefile_open(casefile *file, const char *folder, note *why);
void casefile_close(casefile *file);

/* Reads an array of the folder. `name` must be a plain file name. */
bool casefile_array(const casefile *file, const char *name, npy *array, note *why);

/* "folder/name" from malloc, or NULL. */
char *path_join(const char *folder, const char *name);

/* Entries of a JSON object that must be there, of that type. Strings and containers are borrowed. */
bool field_text(const json_t *object, const char *key, const char **text, note *why);
bool field_int(const json_t *object, const char *key, int32_t minimum, int32_t *number, note *why);
bool field_number(const json_t *object, const char *key, double *number, note *why);
bool field_object(const json_t *object, const char *key, json_t **value, note *why);
bool field_array(const json_t *object, const char *key, json_t **value, note *why);

#endif
