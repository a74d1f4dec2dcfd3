"""Running tables: queries, their sinks, their locks, their end."""
