from app.dates import today

print(today())
