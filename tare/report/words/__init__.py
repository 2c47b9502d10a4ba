"""How names, numbers, verdicts and tables read: nothing of what they say."""
