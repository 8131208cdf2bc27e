-- The function library runs in Redis 7.0 or newer and Valkey: Lua 5.1 and their globals.
std = "lua51"
read_globals = { "redis", "server", "cjson", "cmsgpack", "bit", "struct" }
max_line_length = 100
