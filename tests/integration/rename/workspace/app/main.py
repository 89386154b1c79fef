from app.utils import today

print(today())
