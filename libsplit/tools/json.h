/* SPDX-License-Identifier: Apache-2.0 */
/* Writing one JSON object to standard output. */
#ifndef SFS_JSON_H
#define SFS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out;
	bool comma; /* a value has been written at this level */
};

/* key NULL: an element of an array, or the outermost value. */
void json_object(struct json *j, const char *key);
void json_object_end(struct json *j);
void json_array(struct json *j, const char *key);
void json_array_end(struct json *j);
/* s may hold any bytes: what is not UTF-8 becomes U+FFFD. */
void json_string(struct json *j, const char *key, const char *s);
void json_number(struct json *j, const char *key, uint64_t v);
void json_bool(struct json *j, const char *key, bool v);

#endif
