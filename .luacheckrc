-- The function library runs in Redis 7.0 or newer and Valkey: Lua 5.1 and their globals.
-- Its files are one chunk; `make lint` checks them joined, as the server loads them.
std = "lua51"
read_globals = { "redis", "server", "cjson", "cmsgpack", "bit", "struct" }
-- The head is rendered from the table and has long lines; tests/architecture counts the others.
max_line_length = false
