"""The agent uses a function of this program: python custom_tool.py DIRECTORY MESSAGE"""

import os
import sys

from patchwright import LLM, Conversation, default_agent

PRICES = {"tea": 3, "coffee": 4}


def look_up_price(product: str) -> str:
    """Look up the price of a product in dollars."""
    return f"{product}: {PRICES[product]}" if product in PRICES else f"There is no {product}."


llm = LLM(model=os.environ["MODEL"], base_url=os.environ.get("BASE_URL"))
with Conversation(default_agent(llm).with_tools(look_up_price), sys.argv[1]) as conversation:
    conversation.send_message(sys.argv[2])
    print(conversation.run().answer)
