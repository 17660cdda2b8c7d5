/*
 * cgi: one request as plain CGI (RFC 3875): environment and standard input in,
 * standard output out.
 */
#ifndef GATEWAY_CGI_H
#define GATEWAY_CGI_H

#include "ground/config.h"

/*
 * cgi_begin():
 * Find or make the request's id, for its answer and for the log.  Call before
 * anything is logged.
 *
 * cgi_serve(config):
 * Answer the request; if `config` is NULL, that the service cannot start.
 * Return 0; a status of sysexits.h if the token file or the store cannot be
 * used, logged, and the answer is an error.
 */
void cgi_begin(void);
int cgi_serve(const struct config *config);

#endif
