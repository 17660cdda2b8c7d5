/*
 * sandbox: what the long-lived process gives up before it serves.
 *
 * sandbox_enter(config):
 * Drop all capabilities of this thread and of those that it starts later, and
 * restrict them to the files and calls of SANDBOX in plant-store.fcgi(8).  Log
 * and skip a restriction that the kernel does not support.  If config->sandbox
 * is false, only log a warning.  Needs free descriptors.
 */
#pragma once

#include "ground/config.h"

void sandbox_enter(const struct config *config);
