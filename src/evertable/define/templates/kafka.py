"""Clicks come as JSON from a Kafka topic. A Kafka to begin with, beside this in another terminal:

evertable broker --port 9092 --topic clicks
"""

import os

from pyspark.sql import functions as F

import evertable as et

KAFKA = os.environ.get("KAFKA", "localhost:9092")

ads = et.Pipeline("PIPELINE_NAME")
ads.stream(
    "clicks",
    format="kafka",
    options={
        "kafka.bootstrap.servers": KAFKA,
        "subscribe": "clicks",
        "startingOffsets": "earliest",
    },
    decode=et.json("ad INT, clicked_at TIMESTAMP"),
    watermark=("clicked_at", "5 seconds"),
)
ads.stream("ticks", format="rate", options={"rowsPerSecond": 5})
ads.static(
    "adverts",
    format="csv",
    path="data/adverts.csv",
    schema="ad INT, brand STRING",
    options={"header": True},
)


@ads.table(trigger=et.every("1 second"), sink=et.kafka(KAFKA, topic="clicks"))
def clicks_made_up(ticks):
    """Clicks that Spark makes up, so that this runs as it is. Remove it once yours come."""
    ad = (F.col("value") % 10).cast("int").alias("ad")
    click = F.struct(ad, F.col("timestamp").alias("clicked_at"))
    return ticks.select(F.to_json(click).alias("value"))


@ads.table(output_mode="append", trigger=et.every("1 second"))
def clicks_per_window(clicks, adverts):
    """One final row for each brand and window, once no more rows of it can come."""
    return (
        clicks.join(adverts, "ad")
        .groupBy(F.window("clicked_at", "10 seconds").alias("w"), "brand")
        .agg(F.count("*").alias("clicks"))
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
