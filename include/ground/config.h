/*
 * config: the settings, read once from the environment and checked.
 *
 *	PLANT_STORE_DIR             /var/lib/plant-store     absolute path
 *	PLANT_STORE_TOKENS          /etc/plant-store/tokens  absolute path
 *	PLANT_STORE_BASE_PATH       ""       "" or "/" or /seg(/seg)*
 *	PLANT_STORE_BODY_BYTES_MAX  65536    64 to 1048576
 *	PLANT_STORE_THREADS         CPUs/2   1 to 64
 *	PLANT_STORE_STATUS          http     http or contract
 *	PLANT_STORE_LOG_LEVEL       info     error, warning, info or debug
 *
 * A variable that is set but empty counts as absent, but for
 * PLANT_STORE_BASE_PATH, whose default is empty.
 */
#ifndef GROUND_CONFIG_H
#define GROUND_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "ground/log.h"

/* The largest body that may be configured; it bounds a line of the journal. */
#define CONFIG_BODY_BYTES_MAX ((size_t)1 << 20)

struct config {
	const char *dir;       /* of the store */
	const char *tokens;    /* the token file */
	const char *base_path; /* no trailing slash; "" for the root */
	size_t body_bytes_max;
	unsigned threads;     /* reactors */
	bool contract_status; /* every failure is 400 */
	enum log_level log_level;
};

/*
 * config_read(config, error, error_len):
 * Fill `config` from the environment.  Its strings belong to the environment
 * and stay as long as that is not changed.  Return 0; -1 with one line in
 * `error` that names the variable, its value and what is allowed.
 */
int config_read(struct config *config, char *error, size_t error_len);

#endif
