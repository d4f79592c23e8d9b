"""Tables of people: text, dates, gaps."""

import numpy as np
import pandas as pd

CITIES = ("Aachen", "Bonn", "Celle", "Dresden")


def sales(n=160, seed=0, gaps=True):
    """Prices of a positive, skewed kind: by city, size, season and a number with gaps."""
    generator = np.random.default_rng(seed)
    city = generator.integers(len(CITIES), size=n)
    day = pd.Timestamp("2022-01-01") + pd.to_timedelta(generator.integers(0, 900, n), unit="D")
    size, age = generator.lognormal(sigma=0.5, size=n), generator.normal(size=n)
    season = np.sin(2 * np.pi * day.day_of_year.to_numpy() / 365.25)
    log_price = (
        np.array([0.0, 0.8, -0.7, 0.3])[city] + 0.6 * np.log(size) + 0.4 * season + np.sin(age)
    )
    price = np.exp(log_price + 0.1 * generator.normal(size=n))
    table = pd.DataFrame(
        {
            "city": np.array(CITIES, dtype=object)[city],
            "sold": day,
            "size": size,
            "age": age,
            "price": price,
        }
    )
    if gaps:
        table.loc[generator.choice(n, n // 15, replace=False), "age"] = np.nan
        table.loc[generator.choice(n, n // 20, replace=False), "city"] = None
    return table


def without_directions(encoder, found):
    """Leave out the columns that tell apart the rows with a gap."""
    names = encoder.get_feature_names_out()
    return found[:, [" unknown" not in name for name in names]]
