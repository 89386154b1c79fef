"""What is stored in Redis: queue, inbox of deliveries, records, counters, sessions, and shared logs."""
