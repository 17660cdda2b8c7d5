/*
 * fuzz_log: replaces the service's log in a target that logs much: it counts
 * the errors, and prints messages only if the variable FUZZ_LOG is set.
 * Included once in a target.
 */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ground/log.h"

static unsigned fuzz_log_errors;

void
log_at(enum log_level level, const char *format, ...)
{
	va_list arguments;

	fuzz_log_errors += level == LOG_AT_ERROR;
	if (getenv("FUZZ_LOG") == NULL)
		return;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}
