/* metrics_command: what the processes of a store have counted. */
#include <stdio.h>
#include <sysexits.h>

#include "api/api.h"
#include "command.h"
#include "ground/fault.h"
#include "ground/metrics.h"

static const char usage[] =
    "Usage: plant-store metrics [--dir DIR]\n"
    "\n"
    "Print what all processes of a store have counted, in Prometheus' text\n"
    "format.  plant-store.fcgi(8) has what each metric means.\n"
    "\n";

static int
run(const struct call *call)
{
	static char text[API_METRICS_MAX];
	struct config config;
	enum fault fault;

	if (config_read(&config) != FAULT_NONE)
		return EX_CONFIG;
	fault = metrics_open(call->dir, false);
	if (fault != FAULT_NONE) {
		(void)fault_report(call->dir, "cannot open its metrics");
		return command_fault(fault);
	}
	struct tokens *tokens =
	    tokens_open(config.tokens, TOKENS_ANY_USER, &fault);
	if (tokens == NULL)
		return command_fault(fault);
	fwrite(
	    text, api_metrics(tokens, config.contract_status, text), 1, stdout);
	tokens_close(tokens);
	return EX_OK;
}

const struct command metrics_command = {
	.name = "metrics",
	.summary = "print what all processes of a store have counted",
	.usage = usage,
	.options = { COMMAND_DIR, COMMAND_HELP },
	.instead = "those of each process, at PLANT_STORE_METRICS_PATH",
	.run = run,
};
