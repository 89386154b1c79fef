last=3
n=1
while [ "$n" -le "$last" ]; do
  echo "$((n * n))"
  n=$((n + 1))
done >squares.txt
