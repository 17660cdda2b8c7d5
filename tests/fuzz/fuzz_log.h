/*
 * fuzz_log: in the place of the service's log, for a target that has it say
 * much: counts the errors, and says them only if the variable FUZZ_LOG is set.
 * Included once in a target.
 */
#ifndef TESTS_FUZZ_FUZZ_LOG_H
#define TESTS_FUZZ_FUZZ_LOG_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ground/log.h"

static unsigned fuzz_log_errors;

__attribute__((format(printf, 1, 0))) static void
fuzz_log_say(const char *format, va_list arguments)
{
	if (getenv("FUZZ_LOG") == NULL)
		return;
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
}

#define FUZZ_LOG_DEFINE(function, counted)       \
	void function(const char *format, ...)   \
	{                                        \
		va_list arguments;               \
                                                 \
		fuzz_log_errors += (counted);    \
		va_start(arguments, format);     \
		fuzz_log_say(format, arguments); \
		va_end(arguments);               \
	}

FUZZ_LOG_DEFINE(log_error, 1)
FUZZ_LOG_DEFINE(log_warning, 0)
FUZZ_LOG_DEFINE(log_info, 0)
FUZZ_LOG_DEFINE(log_debug, 0)

#endif
