# Prints the limits that the kernel reports inside the container. The output is short, because the engine
# returns only its last 60 lines.
while read -r line; do
  case $line in Cap*|NoNewPrivs*|Seccomp:*|Uid:*) echo "$line";; esac
done < /proc/self/status
cat /proc/self/limits
for file in memory.max pids.max cpu.max memory/memory.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us \
  cpu/cpu.cfs_period_us; do
  if [ -r /sys/fs/cgroup/$file ]; then echo "$file: $(cat /sys/fs/cgroup/$file)"; fi
done
