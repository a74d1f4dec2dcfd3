"""`evertable test` runs these: rows are pushed, time stands still, no Kafka is needed."""

from evertable.testing import Fault, assert_same_as_batch

ADVERTS = [{"ad": 1, "brand": "acme"}]


def test_a_window_closes_when_the_watermark_has_passed_it(pipeline):
    t = pipeline.table("clicks_per_window")
    pipeline.static("adverts", ADVERTS)
    pipeline.push("clicks", [{"ad": 1, "clicked_at": "12:00:03"}])
    pipeline.run_until_idle()
    assert t.rows() == []  # more of this window might come
    pipeline.push("clicks", [{"ad": 1, "clicked_at": "12:00:15"}])
    pipeline.run_until_idle()
    assert t.watermark == "12:00:10"
    assert t.rows() == [
        {"w_start": "12:00:00", "w_end": "12:00:10", "brand": "acme", "clicks": 1},
    ]


def test_a_late_row_is_not_counted(pipeline):
    t = pipeline.table("clicks_per_window")
    pipeline.static("adverts", ADVERTS)
    pipeline.push("clicks", [{"ad": 1, "clicked_at": "12:00:40"}])
    pipeline.run_until_idle()
    pipeline.push("clicks", [{"ad": 1, "clicked_at": "12:00:03"}])
    pipeline.run_until_idle()
    assert t.dropped_by_watermark == 1


def test_a_crash_loses_nothing(pipeline):
    t = pipeline.table("clicks_per_brand")
    pipeline.push("clicks", [{"ad": ad, "clicked_at": "12:00:01"} for ad in range(10)])
    with pipeline.crash(Fault.AFTER_SINK_COMMIT):
        pipeline.run_until_idle()
    pipeline.restart()
    pipeline.push("clicks", [{"ad": 3, "clicked_at": "12:00:02"}])
    assert_same_as_batch(t)
