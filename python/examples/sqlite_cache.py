"""A cache of answers in front of SQLite: a dict, and a ramfold.Store.

The database has 60 000 customers, each with a document of about 1.2 KB. Requests ask for some of
them often and for most of them seldom. In the way "limited" the store has a limit: what was not
read for long leaves it, and SQLite is asked again.
"""

import hashlib
import json
import os
import random
import sqlite3
import tempfile

import beside
import ramfold

SEED = 20_261_127
CUSTOMERS = 60_000
REQUESTS = 200_000

CITIES = ["Trier", "Mainz", "Worms", "Speyer", "Bingen", "Koblenz"]
ARTICLES = ["lamp", "table", "chair", "shelf", "carpet", "mirror", "clock", "curtain"]


def document(draw, number):
    """A customer, as a program keeps one."""
    orders = [{"article": draw.choice(ARTICLES), "order": draw.randrange(10**9),
               "cents": draw.randrange(10**5), "paid": draw.random() < 0.9}
              for _ in range(16)]
    return json.dumps({"customer": number, "name": f"customer {draw.randrange(10**6)}",
                       "city": draw.choice(CITIES), "orders": orders})


def fill(database):
    draw = random.Random(SEED)
    database.execute("create table customers (id integer primary key, document text)")
    rows = ((number, document(draw, number)) for number in range(CUSTOMERS))
    database.executemany("insert into customers values (?, ?)", rows)
    database.commit()


class Customers:
    """The documents of customers: from the cache, or else from the database."""

    def __init__(self, database, cache):
        self.database = database
        self.cache = cache
        self.asked = 0

    def __getitem__(self, number):
        key = b"%d" % number
        found = self.cache.get(key)
        if found is None:
            self.asked += 1
            query = "select document from customers where id = ?"
            found = self.database.execute(query, (number,)).fetchone()[0].encode()
            self.cache[key] = found
        return found


def run(way):
    cache = {"plain": dict, "folded": ramfold.Store,
             "limited": lambda: ramfold.Store(limit="8M")}[way]()
    draw, answers = random.Random(SEED), hashlib.sha256()
    with tempfile.TemporaryDirectory() as directory:
        database = sqlite3.connect(os.path.join(directory, "customers.db"))
        fill(database)
        customers = Customers(database, cache)
        for _ in range(REQUESTS):
            number = int(CUSTOMERS * draw.random() ** 2)
            answers.update(customers[number])
        database.close()
    result = {"answers": answers.hexdigest()[:16]}
    return result, customers


if __name__ == "__main__":
    beside.main(run, "plain", "folded", "limited")
