-- Sends the question in the file of the first argument. "close" as the second one asks for a connection per request.
function init(args)
   local file = assert(io.open(args[1], "rb"))
   wrk.method = "POST"
   wrk.body = file:read("*a")
   file:close()
   wrk.headers["Content-Type"] = "application/json"
   if args[2] == "close" then
      wrk.headers["Connection"] = "close"
   end
end

-- Prints one line of JSON. Times are in microseconds. An answer of 3xx is no error for wrk.
function done(summary, latency)
   local errors = summary.errors
   print(string.format(
      '{"requests":%d,"errors":%d,"duration":%d,"p50":%d,"p99":%d,"p999":%d}', summary.requests,
      errors.connect + errors.read + errors.write + errors.timeout + errors.status, summary.duration,
      latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
