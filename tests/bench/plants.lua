-- A script for wrk: every request creates a plant with an id of its own.
-- Arguments: token, first id.  Ends with one line of JSON for web.py.

-- The request is put together once, since what wrk does for each takes its share
-- of the CPUs from what is measured.  All ids have as many digits.
function init(args)
	id = 1000000000000 + tonumber(args[2])
	wrk.method = "POST"
	wrk.headers["Authorization"] = "Bearer " .. args[1]
	wrk.headers["Content-Type"] = "application/json"
	wrk.body = string.format('{"id":%d,"name":"Fern","tag":"indoor"}', id)
	before = wrk.format()
	local first, last = before:find(string.format("%d", id), 1, true)
	before, after = before:sub(1, first - 1), before:sub(last + 1)
end

function request()
	id = id + 1
	return string.format("%s%d%s", before, id, after)
end

-- Without a function for each response wrk need not keep headers and body; those
-- of 400 and above it counts by itself, as errors of the kind "status".
function done(summary, latency, requests)
	local errors = summary.errors
	print(string.format('{"ok":%d,"bad":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f}',
	    summary.requests - errors.status,
	    errors.status + errors.connect + errors.read + errors.write + errors.timeout,
	    summary.duration / 1e6, latency:percentile(50) / 1e3,
	    latency:percentile(99) / 1e3))
end
