-- A script for wrk: every request creates a plant with an id of its own.
-- Arguments: token, first id, method.  Ends with one line of JSON for wrk.py.

local threads = {}

function setup(thread)
	thread:set("number", #threads)
	table.insert(threads, thread)
end

function init(args)
	-- A thread never sends as many, so the ids stay apart.
	id = tonumber(args[2]) + number * 10000000
	wrk.method = args[3]
	wrk.headers["Authorization"] = "Bearer " .. args[1]
	wrk.headers["Content-Type"] = "application/json"
	ok = 0
	other = 0
	sample = ""
end

function request()
	id = id + 1
	if wrk.method == "GET" then
		return wrk.format()
	end
	return wrk.format(nil, nil, nil, string.format(
	    '{"id":%d,"name":"Fern","tag":"indoor"}', id))
end

function response(status, headers, body)
	if status == 200 then
		ok = ok + 1
	else
		other = other + 1
		sample = status .. " " .. body
	end
end

function done(summary, latency, requests)
	local ok, other, sample = 0, 0, ""
	for _, thread in ipairs(threads) do
		ok = ok + thread:get("ok")
		other = other + thread:get("other")
		sample = sample .. thread:get("sample")
	end
	local errors = summary.errors
	for kind, count in pairs(errors) do
		if kind ~= "status" and count > 0 then
			sample = sample .. " " .. kind .. " errors: " .. count
		end
	end
	print(string.format('{"ok":%d,"other":%d,"broken":%d,"seconds":%.6f,' ..
	    '"p50_ms":%.3f,"p99_ms":%.3f}', ok, other,
	    errors.connect + errors.read + errors.write + errors.timeout,
	    summary.duration / 1e6, latency:percentile(50) / 1e3,
	    latency:percentile(99) / 1e3))
	if sample ~= "" then
		print("not 200: " .. sample)
	end
end
