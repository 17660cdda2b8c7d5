/*
 * sandbox: what the long-lived process gives up before it serves.
 *
 * sandbox_enter(config):
 * From now on this thread, and those that it starts, have no capabilities, and
 * only the files and system calls of SANDBOX in plant-store.fcgi(8).  What the
 * kernel does not have is logged, and the rest holds.  If config->sandbox is
 * false, this only logs a warning.  Call with descriptors to spare.
 */
#ifndef SANDBOX_H
#define SANDBOX_H

#include "ground/config.h"

void sandbox_enter(const struct config *config);

#endif
