"""Twenty tickets written by hand, each with a label and words that give it away.

A row: the text, the label asked for, some words of which the first phrase must hold
one, and what is hard about it.
"""

HAND_WRITTEN = [
    (
        "I love the new design, but you charged my card twice for the same order.",
        "billing",
        ["charged", "card twice"],
        "mixed feelings",
    ),
    (
        "The parcel arrived on time, thank you, but the app crashes when I open it.",
        "crash",
        ["crash"],
        "two topics in one sentence",
    ),
    (
        "I cannot log in since I changed my phone, and the invoice for May is wrong.",
        "login",
        ["log in"],
        "two topics in one sentence",
    ),
    (
        "I cannot log in since I changed my phone, and the invoice for May is wrong.",
        "billing",
        ["invoice"],
        "two topics in one sentence",
    ),
    (
        "My password is not accepted any more. Otherwise I am quite happy.",
        "login",
        ["password"],
        "negation",
    ),
    (
        "My notes do not sync between my phone and my laptop.",
        "sync",
        ["sync"],
        "negation",
    ),
    (
        "The tracking page says delivered, but my parcel never arrived.",
        "shipping",
        ["parcel", "tracking", "arrived", "delivered"],
        "negation",
    ),
    (
        "Great, another crash. Just what I needed on a Monday morning.",
        "crash",
        ["crash"],
        "sarcasm, hard",
    ),
    (
        "Please cancel my subscription at the end of the month.",
        "cancellation",
        ["cancel", "subscription"],
        "plain",
    ),
    (
        "I would like to send the shoes back, they are too small. How do returns work?",
        "returns",
        ["send", "returns", "back"],
        "plain",
    ),
    (
        "The battery of my tablet is swollen and the screen flickers.",
        "hardware",
        ["battery", "screen", "swollen", "flickers"],
        "plain",
    ),
    (
        "It would be nice if you could add a dark mode to the calendar.",
        "feature-request",
        ["dark mode", "add", "nice if"],
        "plain",
    ),
    (
        "Who can see my data, and how do I delete everything you store about me?",
        "privacy",
        ["data", "store", "delete"],
        "plain",
    ),
    (
        "The page takes a minute to load and everything is terribly slow.",
        "performance",
        ["slow", "load", "minute"],
        "plain",
    ),
    (
        "I get ten emails a day from you. How do I turn off these notifications?",
        "notifications",
        ["notifications", "emails", "turn off"],
        "plain",
    ),
    (
        "The support was friendly and quick, yet my refund of $167.25 is missing.",
        "billing",
        ["refund", "$167.25"],
        "mixed feelings",
    ),
    (
        "Since the update the app is not slow any more, but it freezes and closes.",
        "crash",
        ["freezes", "closes"],
        "negation, hard",
    ),
    (
        "I am not asking for my money back, I only want to know where my order is.",
        "shipping",
        ["order", "where"],
        "negation, hard",
    ),
    (
        "Thanks for the wonderful service: three weeks and still no package.",
        "shipping",
        ["package"],
        "sarcasm, hard",
    ),
    (
        "Cancel my plan, and send me the last invoice, please.",
        "cancellation",
        ["cancel"],
        "two topics in one sentence",
    ),
]
