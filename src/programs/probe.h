/*
 * probe: one HTTP request to the service, as a client sends it, and what of the
 * answer tells how it is deployed.  The only module that knows libcurl.
 */
#ifndef PROGRAMS_PROBE_H
#define PROGRAMS_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct probe_request {
	const char *method;
	const char *url;
	const char *token; /* NULL: without a credential */
	const char *body;  /* NULL: none */
	size_t body_len;
};

struct probe_answer {
	const char *failure; /* NULL, or why there is no answer at all */
	bool connected;      /* something took the connection */
	long status;
	int64_t error;  /* the number in an Error body of ours, else 0 */
	char type[128]; /* Content-Type; "" if there is none, as below */
	char allow[128];
	char authenticate[256]; /* WWW-Authenticate */
	char location[256];     /* where a redirect points, absolute */
	char detail[256];       /* libcurl's words on `failure` */
};

/*
 * probe_send(request, answer):
 * Send it and wait for the answer, for at most PROBE_TIMEOUT_S.  Redirects are
 * not followed.  Return 0; -1 if there is no memory.  Strings in the answer are
 * cut to their room.
 */
#define PROBE_TIMEOUT_S 15L
int probe_send(
    const struct probe_request *request, struct probe_answer *answer);

#endif
