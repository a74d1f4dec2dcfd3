"""Adverts are shown and clicked; Spark itself makes the rows up, so this runs as it is.

`evertable run` and `python pipeline.py` do the same.
"""

from pyspark.sql import functions as F

import evertable as et

ads = et.Pipeline("PIPELINE_NAME")

# rate gives two columns: timestamp, value
ads.stream(
    "impressions_raw",
    format="rate",
    options={"rowsPerSecond": 20},
    watermark=("timestamp", "5 seconds"),
)
ads.stream(
    "clicks_raw",
    format="rate",
    options={"rowsPerSecond": 5},
    watermark=("timestamp", "5 seconds"),
)
ads.static(
    "adverts",
    format="csv",
    path="data/adverts.csv",
    schema="ad INT, brand STRING",
    options={"header": True},
)


@ads.view
def clicks(clicks_raw):
    return clicks_raw.select(
        F.col("timestamp").alias("clicked_at"), (F.col("value") % 10).cast("int").alias("ad")
    )


@ads.table(output_mode="append", trigger=et.every("1 second"))
def shown_per_brand(impressions_raw, adverts):
    """One final row for each brand and window, once no more rows of it can come."""
    shown = impressions_raw.withColumn("ad", (F.col("value") % 10).cast("int"))
    return (
        shown.join(adverts, "ad")
        .groupBy(F.window("timestamp", "10 seconds").alias("w"), "brand")
        .agg(F.count("*").alias("shown"))
    )


@ads.table(output_mode="update", trigger=et.every("1 second"))
def clicks_per_brand(clicks, adverts):
    """One row for each brand, brought up to date with every batch."""
    return (
        clicks.join(adverts, "ad")
        .groupBy("brand")
        .agg(F.count("*").alias("clicks"), F.max("clicked_at").alias("last_click"))
    )


if __name__ == "__main__":
    ads.run()
