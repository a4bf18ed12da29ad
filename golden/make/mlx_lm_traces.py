"""The traces of mlx_lm_traces.h5: (name, case, expectation, reason). What each class is for stands above its block.

Findings were traced to their lines in mlx-lm 0.32.2, mlx_lm/models/cache.py; golden/make/README.md lists them.
"""


def case(setup, *operations):
    return f"cache {setup}; " + "; ".join(operations)


# One sequence: growth beyond the step of 256, trims, copies, files; every type; K and V of different width.
SINGLE = [
    ("single.f32", case("k=f32 hkv=2 dk=4 data=tokens:1", "new A", "append A 3", "append A 1", "append A 1",
                        "copy A -> B", "append B 2", "append A 1")),
    ("single.f16.k_and_v_differ", case("k=f16 x=f16 hkv=2 dk=8 dv=4 data=tokens:2", "new A", "append A 5", "trim A 2",
                                       "append A 1", "trim A 4", "append A 3")),
    ("single.bf16.growth", case("k=bf16 x=bf16 dk=4 data=tokens:3 observe=last", "new A", "append A 150",
                                "append A 106", "append A 1", "trim A 3", "append A 4", "copy A -> B", "append B 1")),
    ("single.trim_to_nothing", case("k=f32 dk=4 data=tokens:4", "new A", "append A 2", "trim A 2", "append A 3",
                                    "trim A 9", "append A 1")),
    ("single.files", case("k=f16 x=f16 hkv=2 dk=4 data=tokens:5", "new A", "append A 3", "save A s1", "append A 1",
                          "load s1 -> B", "append B 2", "trim B 4", "append B 1", "save B s1", "load s1 -> A",
                          "append A 1")),
    ("single.file_of_nothing", case("k=f32 dk=4 data=tokens:6", "load s1 -> B", "new A", "save A s1", "load s1 -> B",
                                    "append B 2")),
    ("single.truncated_file", case("k=f32 dk=4 data=tokens:7", "new A", "append A 2", "copy A -> B", "save A s1",
                                   "damage s1 truncate", "load s1 -> B", "append B 1")),
    ("single.foreign_file", case("k=f32 dk=4 data=tokens:8", "new A", "append A 2", "save A s1", "damage s1 foreign",
                                 "load s1 -> A", "append A 1")),
    ("single.attend", case("k=f32 hkv=2 hq=4 dk=16 data=tokens:9", "new A", "append A 3", "attend A", "append A 1",
                           "attend A sinks", "append A 2", "attend A window=2")),
    ("window.linear", case("layout=linear:w=3 k=f32 hkv=2 dk=4 data=tokens:10", "new A", "append A 2", "append A 1",
                           "append A 4", "append A 1", "trim A 2", "append A 2")),
    ("window.linear.attend", case("layout=linear:w=4 k=f16 x=f16 hq=2 dk=16 data=tokens:11", "new A", "append A 3",
                                  "attend A", "append A 5", "attend A", "append A 1", "attend A window=2")),
]

# A ring: not full, full, wrapped; one-token steps and chunks, longer than the window too.
RING = [
    ("ring.steps", case("layout=ring:w=3 k=f32 hkv=2 dk=4 data=tokens:20", "new A", *["append A 1"] * 7)),
    ("ring.chunks", case("layout=ring:w=4 k=f32 dk=4 data=tokens:21", "new A", "append A 3", "append A 1", "append A 1",
                         "append A 3", "append A 6", "append A 1", "append A 2")),
    ("ring.first_chunk_beyond_window", case("layout=ring:w=3 k=bf16 x=bf16 dk=4 data=tokens:22", "new A", "append A 7",
                                            "append A 1", "append A 1", "append A 5")),
    ("ring.trim", case("layout=ring:w=5 k=f32 dk=4 data=tokens:23", "new A", "append A 3", "trim A 2", "append A 1",
                       "append A 1", "trim A 1", "append A 3", "append A 1", "trim A 1", "append A 1")),
    ("ring.trim_when_full", case("layout=ring:w=4 k=f32 dk=4 data=tokens:24", "new A", "append A 6", "trim A 2",
                                 "append A 1", "trim A 9", "append A 1")),
    ("ring.one_token_window", case("layout=ring:w=1 k=f32 dk=4 data=tokens:25", "new A", "append A 2", "append A 1",
                                   "append A 3", "append A 1")),
    ("ring.files", case("layout=ring:w=4 k=f16 x=f16 dk=4 data=tokens:26", "new A", "append A 5", "append A 1",
                        "save A s1", "load s1 -> B", "append B 1", "append B 2", "append A 1")),
    ("ring.attend", case("layout=ring:w=4 k=f32 hq=2 dk=8 data=tokens:27", "new A", "append A 3", "attend A",
                         "append A 1", "append A 1", "attend A window=2", "append A 3", "attend A window=3",
                         "append A 1", "attend A sinks")),
    ("keep.steps", case("layout=ring:w=4:keep=2 k=f32 hkv=2 dk=4 data=tokens:28", "new A", *["append A 1"] * 8)),
    ("keep.chunk_then_steps", case("layout=ring:w=5:keep=1 k=f16 x=f16 dk=4 data=tokens:29", "new A", "append A 5",
                                   *["append A 1"] * 6, "copy A -> B", "append B 1")),
    ("keep.trim", case("layout=ring:w=6:keep=2 k=f32 dk=4 data=tokens:30", "new A", "append A 4", "trim A 3",
                       "append A 2", "append A 1", "trim A 1", "append A 1")),
    ("keep.files", case("layout=ring:w=3:keep=1 k=f32 dk=4 data=tokens:31", "new A", "append A 2", *["append A 1"] * 3,
                        "save A s1", "load s1 -> B", "append B 1", "append B 1")),
]

# Affine groups: bits that divide a word and one that does not, conversion of what is there, two rows of one length.
QUANTIZED = [
    ("quantized.b4", case("k=affine:4:g32:f32 dk=32 data=tokens:40", "new A", "append A 3", "append A 1", "trim A 2",
                          "append A 2", "copy A -> B", "append B 1")),
    ("quantized.b8.f16", case("k=affine:8:g64:f16 x=f16 hkv=2 dk=64 data=tokens:41", "new A", "append A 2",
                              "append A 1")),
    ("quantized.b2.bf16", case("k=affine:2:g32:bf16 x=bf16 dk=64 dv=32 data=tokens:42", "new A", "append A 2",
                               "append A 2")),
    ("quantized.b3", case("k=affine:3:g64:f32 dk=64 data=tokens:43", "new A", "append A 2", "append A 1")),
    ("quantized.b6", case("k=affine:6:g32:f32 dk=32 data=tokens:44", "new A", "append A 2", "append A 1")),
    ("quantized.later", case("k=f32 dk=32 data=tokens:45", "new A", "append A 3",
                             "to_quantized A k=affine:4:g32:f32 v=affine:4:g32:f32", "append A 1", "trim A 2",
                             "append A 2")),
    ("quantized.later.bf16", case("k=bf16 x=bf16 dk=64 data=tokens:46", "new A", "append A 2", "trim A 1",
                                  "to_quantized A k=affine:8:g64:bf16 v=affine:8:g64:bf16", "append A 2")),
    ("quantized.empty_first", case("k=f32 dk=32 data=tokens:47", "new A",
                                   "to_quantized A k=affine:4:g32:f32 v=affine:4:g32:f32", "append A 2", "append A 1")),
    ("quantized.rows", case("k=affine:4:g32:f32 hkv=2 dk=32 data=tokens:48", "new A rows=2", "append A 2", "append A 1",
                            "trim A 1", "append A 2")),
    ("quantized.files", case("k=affine:4:g32:f32 dk=32 data=tokens:49", "new A", "append A 3", "save A s1",
                             "load s1 -> B", "append B 1", "trim B 2", "append B 1")),
    ("quantized.growth", case("k=affine:4:g32:f16 x=f16 dk=32 data=tokens:50 observe=last", "new A", "append A 120",
                              "append A 137", "append A 1", "trim A 4", "append A 2")),
    ("quantized.attend", case("k=affine:8:g32:f32 hkv=1 hq=2 dk=32 data=tokens:51", "new A", "append A 3",
                              "attend A scale=1", "append A 1", "attend A scale=1")),
]

# Ragged batches: left padding, right-padded prefill, rows that come and go.
BATCH = [
    ("batch.left_padding", case("k=f32 hkv=2 dk=4 data=tokens:60", "new A rows=3 pad=1,3,0", "append A 4", "append A 1",
                                "append A 2")),
    ("batch.padding_by_steps", case("k=f32 dk=4 data=tokens:61", "new A rows=2 pad=2,1", "append A 1", "append A 1",
                                    "append A 1", "append A 1")),
    ("batch.right_padding", case("k=f16 x=f16 hkv=2 dk=4 data=tokens:62", "new A rows=3", "prepare A 2,5,1",
                                 "append A 3", "append A 2", "finalize A", "append A 1", "append A 2", "trim A 1",
                                 "append A 1")),
    ("batch.second_prefill", case("k=f32 dk=4 data=tokens:63", "new A rows=2", "prepare A 3,1", "append A 3",
                                  "finalize A", "append A 1", "prepare A 1,4", "append A 4", "finalize A",
                                  "append A 1")),
    ("batch.merge_and_extract", case("k=f32 hkv=2 dk=4 data=tokens:64", "new A", "new B", "append A 4", "append B 1",
                                     "merge B,A,B -> C", "append C 1", "extract C 0 -> D", "extract C 1 -> E",
                                     "append D 1", "append E 2", "append C 1")),
    ("batch.merge_with_empty", case("k=bf16 x=bf16 dk=4 data=tokens:65", "new A", "new B", "append A 3",
                                    "merge A,B -> C", "append C 1", "extract C 1 -> B", "append B 1")),
    ("batch.merge_of_empty", case("k=f32 dk=4 data=tokens:66", "new A", "new B", "merge A,B -> C", "append C 2",
                                  "append C 1")),
    ("batch.filter", case("k=f32 dk=4 data=tokens:67", "new A rows=3 pad=2,0,3", "append A 5", "filter A 0,2",
                          "append A 1", "filter A 1", "append A 2")),
    ("batch.filter_permutes", case("k=f32 dk=4 data=tokens:68", "new A rows=2 pad=1,0", "append A 3", "filter A 1,0,1",
                                   "append A 1", "trim A 1", "append A 1")),
    ("batch.extend", case("k=f32 hkv=2 dk=4 data=tokens:69", "new A rows=2 pad=1,0", "append A 3", "new B rows=1 pad=0",
                          "append B 1", "extend A B", "append A 1", "append B 1", "extend B A", "append B 1")),
    ("batch.extend_empty_sides", case("k=f32 dk=4 data=tokens:70", "new A rows=1 pad=0", "new B rows=2 pad=1,0",
                                      "append B 3", "extend A B", "append A 1", "new C rows=1 pad=0", "extend B C",
                                      "append B 2")),
    ("batch.extend_itself", case("k=f16 x=f16 dk=4 data=tokens:71", "new A rows=2 pad=0,1", "append A 2", "extend A A",
                                 "append A 1", "filter A 3,0", "append A 1")),
    ("batch.serving", case("k=f32 dk=4 data=tokens:72", "new A", "append A 3", "merge A -> B", "append B 1",
                           "new C rows=2", "prepare C 4,2", "append C 4", "finalize C", "extend B C", "append B 1",
                           "filter B 1,2", "append B 1", "extract B 0 -> D", "append D 1", "trim D 2", "append D 1")),
    ("batch.growth", case("k=f16 x=f16 dk=4 data=tokens:73 observe=last", "new A rows=2 pad=0,60", "append A 120",
                          "append A 135", "append A 2", "new B rows=1 pad=0", "append B 3", "extend B A", "append B 1",
                          "filter B 2", "append B 1")),
    ("batch.files", case("k=f32 dk=4 data=tokens:74", "new A rows=2 pad=1,0", "append A 3", "save A s1", "load s1 -> B",
                         "append B 1", "extract B 0 -> C", "append C 1")),
    ("batch.copies_apart", case("k=f32 dk=4 data=tokens:75", "new A rows=2 pad=1,0", "append A 2", "copy A -> B",
                                "append B 1", "filter B 1", "append A 2", "append B 1")),
    ("batch.window", case("layout=linear:w=3 k=f32 dk=4 data=tokens:76", "new A rows=2 pad=2,0", "append A 4",
                          "append A 1", "append A 3")),
    ("batch.attend", case("k=f32 hkv=2 hq=4 dk=8 data=tokens:77", "new A", "new B", "append A 4", "append B 2",
                          "merge A,B -> C", "append C 1", "attend C", "append C 2", "attend C window=3 sinks")),
]

# Batches of rings.
BATCH_RING = [
    ("batch_ring.steps", case("layout=ring:w=3 k=f32 hkv=2 dk=4 data=tokens:80", "new A rows=2 pad=1,0", "append A 2",
                              *["append A 1"] * 5)),
    ("batch_ring.chunks", case("layout=ring:w=4 k=f32 dk=4 data=tokens:81", "new A rows=2", "append A 3", "append A 6",
                               "append A 1", "append A 2", "append A 5")),
    ("batch_ring.right_padding", case("layout=ring:w=4 k=f16 x=f16 dk=4 data=tokens:82", "new A rows=3",
                                      "prepare A 2,6,1", "append A 4", "append A 2", "finalize A", "append A 1",
                                      "append A 1", "append A 1")),
    ("batch_ring.merge_and_extract", case("layout=ring:w=3 k=f32 dk=4 data=tokens:83", "new A", "new B", "append A 5",
                                          "append B 2", "merge A,B -> C", "append C 1", "append C 1",
                                          "extract C 0 -> D", "extract C 1 -> E", "append D 1", "append E 2",
                                          "append C 1")),
    ("batch_ring.extend_rotated", case("layout=ring:w=3 k=f32 dk=4 data=tokens:84", "new A rows=1 pad=0", "append A 3",
                                       "append A 1", "new B rows=2 pad=1,0", "append B 2", "extend A B", "append A 1",
                                       "append A 1", "extend B A", "append B 1")),
    ("batch_ring.filter", case("layout=ring:w=4 k=f32 dk=4 data=tokens:85", "new A rows=3 pad=1,0,2", "append A 4",
                               "append A 1", "filter A 2,0", "append A 1", "trim A 1", "append A 1")),
    ("batch_ring.trim", case("layout=ring:w=6 k=f32 dk=4 data=tokens:86", "new A rows=2 pad=1,0", "append A 4",
                             "trim A 2", "append A 1", "append A 3", "append A 1")),
    ("batch_ring.attend", case("layout=ring:w=4 k=f32 hq=2 dk=8 data=tokens:87", "new A", "new B", "append A 6",
                               "append B 2", "merge A,B -> C", "append C 1", "attend C", "append C 1",
                               "attend C window=2")),
]

# Chunks of Llama 4.
CHUNK = [
    ("chunk.steps", case("layout=chunk:c=3 k=f32 hkv=2 dk=4 data=tokens:90", "new A", *["append A 1"] * 7)),
    ("chunk.chunks", case("layout=chunk:c=4 k=f32 dk=4 data=tokens:91", "new A", "append A 3", "append A 2",
                          "append A 6", "append A 1", "append A 9", "append A 1")),
    ("chunk.trim_inside", case("layout=chunk:c=4 k=f16 x=f16 dk=4 data=tokens:92", "new A", "append A 4", "append A 3",
                               "trim A 2", "append A 1", "copy A -> B", "append B 2")),
    ("chunk.files", case("layout=chunk:c=4 k=f32 dk=4 data=tokens:93", "new A", "append A 5", "append A 1", "save A s1",
                         "load s1 -> B", "append B 1", "append B 3")),
]

# Where mlx-lm departs from the contract.
FINDINGS = [
    ("finding.keep_in_chunk", case("layout=ring:w=4:keep=2 k=f32 dk=4 data=tokens:100", "new A", "append A 4",
                                   "append A 2", "append A 1"),
     "a chunk on a full ring with keep: the kept tokens stand in the first columns, and RotatingKVCache.make_mask "
     "(cache.py:563) lays one window over all columns, so that later queries of the chunk lose kept tokens and see "
     "tokens beyond the window instead"),
    ("finding.keep_and_first_chunk", case("layout=ring:w=3:keep=1 k=f32 dk=4 data=tokens:101", "new A", "append A 5",
                                          "append A 1"),
     "the first chunk is longer than the window: make_mask (cache.py:563) knows no keep"),
    ("finding.keep_under_window", case("layout=ring:w=5:keep=2 k=f32 hq=2 dk=8 data=tokens:102", "new A", "append A 5",
                                       "append A 1", "attend A window=3"),
     "one token under a window smaller than the ring: make_mask rolls the window over the columns of the kept tokens "
     "as over all others (cache.py:578)"),
    ("finding.keep_lost_by_merge", case("layout=ring:w=4:keep=1 k=f32 dk=4 data=tokens:103", "new A", "new B",
                                        "append A 3", "append B 2", "merge A,B -> C", "append C 1", "append C 1",
                                        "append C 1"),
     "BatchRotatingKVCache has no keep, and RotatingKVCache.merge (cache.py:584) drops it without a word: the kept "
     "tokens of a row are evicted like others"),
    ("finding.rotated_batch_then_chunk", case("layout=ring:w=4 k=f32 dk=4 data=tokens:104", "new A", "new B",
                                              "append A 4", "append B 2", "merge A,B -> C", "append C 1", "append C 2"),
     "a chunk after a one-token step on a full ring: BatchRotatingKVCache.make_mask (cache.py:1316) takes _idx for the "
     "number of columns, but in a rotated buffer it is the place of the next write, and update_and_fetch (1148) puts "
     "the columns in order before it drops one: padded rows lose their oldest token from the mask"),
    ("finding.rotated_batch_then_chunk.padding", case("layout=ring:w=4 k=f32 dk=4 data=tokens:105",
                                                      "new A rows=2 pad=2,0", "append A 4", "append A 1", "append A 2"),
     "the same with left padding, without merge (cache.py:1316)"),
    ("finding.rotated_batch_then_chunk.prefill", case("layout=ring:w=4 k=f32 dk=4 data=tokens:106", "new A rows=2",
                                                      "prepare A 1,3", "append A 3", "finalize A", "append A 1",
                                                      "append A 1", "append A 2"),
     "the same after a right-padded prefill (cache.py:1316)"),
    ("finding.prefill_ends_with_one_column", case("layout=ring:w=4 k=f32 dk=4 data=tokens:107", "new A rows=2",
                                                  "prepare A 2,5", "append A 4", "append A 1", "finalize A",
                                                  "append A 1"),
     "a right-padded prefill whose last chunk has one column raises: update_and_fetch takes one column for decoding "
     "(cache.py:1177); PromptProcessingBatch.prompt in generate.py feeds such a chunk whenever the longest prompt is one "
     "token longer than a multiple of prefill_step_size"),
    ("finding.loaded_ring_batch", case("layout=ring:w=4 k=f32 dk=4 data=tokens:108", "new A rows=2 pad=1,0",
                                       "append A 3", "save A s1", "load s1 -> B", "append B 2"),
     "a batch of rings that was loaded cannot be appended to: from_state (cache.py:190) runs no __init__, and the state "
     "(1279) does not set _lengths, which update_and_fetch reads"),
    ("finding.loaded_batch", case("k=f32 dk=4 data=tokens:109", "new A rows=2 pad=1,0", "append A 3", "save A s1",
                                  "load s1 -> B", "finalize B"),
     "a batch that was loaded cannot be finalized: from_state (cache.py:190) runs no __init__, and the state (965) does "
     "not set _right_padding, which finalize reads"),
    ("finding.trim_beyond_short_row", case("k=f32 dk=4 data=tokens:110", "new A rows=2 pad=2,0", "append A 3",
                                           "trim A 2", "append A 1"),
     "trim of a ragged batch gives back columns (cache.py:972): the row that has one token is said to lose two, its "
     "offset becomes negative, and its next token is hidden as padding"),
    ("finding.trim_beyond_short_row.ring", case("layout=ring:w=6 k=f32 dk=4 data=tokens:111", "new A rows=2 pad=2,0",
                                                "append A 3", "trim A 2", "append A 1"),
     "the same in a batch of rings (cache.py:1295)"),
    ("finding.filter_before_tokens", case("k=f32 dk=4 data=tokens:112", "new A rows=2 pad=2,1", "filter A 0",
                                          "append A 3"),
     "filter of rows whose padding has not been fed: the padding that all rows share is taken off _idx, which becomes "
     "negative (cache.py:998), and the next append writes nothing"),
    ("finding.filter_inside_padding", case("k=f32 dk=4 data=tokens:113", "new A rows=2 pad=2,3", "append A 1",
                                           "filter A 1", "append A 4"),
     "the same where one column of the padding was fed (cache.py:998)"),
    ("finding.filter_to_nothing", case("k=f32 dk=4 data=tokens:114", "new A rows=2", "append A 2", "filter A",
                                       "append A 1"),
     "filter to no rows raises: MLX takes the empty list for one of floats (cache.py:986)"),
    ("finding.extract_of_empty", case("k=f32 dk=4 data=tokens:115", "new A rows=2", "extract A 0 -> B", "append B 1"),
     "extract of a batch that holds nothing raises instead of giving an empty cache (cache.py:1051)"),
    ("finding.extract_of_empty.ring", case("layout=ring:w=4 k=f32 dk=4 data=tokens:116", "new A rows=2",
                                           "extract A 0 -> B", "append B 1"),
     "the same in a batch of rings (cache.py:1397)"),
    ("finding.extract_inside_padding", case("layout=ring:w=4 k=f32 dk=4 data=tokens:117", "new A rows=1 pad=2",
                                            "append A 1", "extract A 0 -> B", "append B 2", "append B 4"),
     "extract of a row whose padding has not all been fed: the batch counts it as a negative offset, and the single "
     "ring takes that over (cache.py:1406), so that its offset is too small from then on"),
    ("finding.trim_into_earlier_chunk", case("layout=chunk:c=4 k=f32 dk=4 data=tokens:118", "new A", "append A 4",
                                             "append A 1", "append A 1", "trim A 3", "append A 1"),
     "trim into an earlier chunk, whose first tokens maybe_trim_front has dropped: ChunkedKVCache.trim (cache.py:789) "
     "gives back what is held, not what the chunk needs, and the next query lacks tokens of its chunk"),
    ("finding.bits_5_of_128_channels", case("k=affine:5:g64:f16 x=f16 dk=128 data=tokens:119", "new A", "append A 1"),
     "QuantizedKVCache counts 32 / bits codes to a word (cache.py:267); mx.quantize packs codes of 5 bits across words, "
     "128 of them in 20 words and not in 21: the append raises"),
    ("finding.bits_6_of_128_channels", case("k=affine:6:g64:f16 x=f16 dk=128 data=tokens:120", "new A", "append A 1"),
     "the same with 6 bits: 24 words, not 25 (cache.py:267)"),
    ("finding.failed_append_moves_offset", case("k=f32 hkv=2 dk=4 data=tokens:121", "new A", "append A 3",
                                                "append A 1 wrong=heads", "append A 1"),
     "an append of the wrong number of heads raises, and has advanced the offset before (cache.py:366): the next query "
     "sees a column that nobody wrote"),
    ("finding.negative_trim", case("k=f32 dk=4 data=tokens:122", "new A", "append A 3", "trim A -2", "append A 1"),
     "trim of a negative number goes forward (cache.py:392) and makes unwritten capacity visible"),
    ("finding.flipped_bit_in_file", case("k=f32 dk=4 data=tokens:123", "new A", "append A 3", "save A s1",
                                         "damage s1 flip at=3", "load s1 -> B"),
     "a file of load_prompt_cache has neither checksum nor version (save_prompt_cache, cache.py:79): a flipped bit is loaded as data"),
    ("finding.queries_scaled_in_place", case("k=affine:8:g32:f32 hq=2 dk=32 data=tokens:125", "new A", "append A 3",
                                             "attend A"),
     "quantized attention multiplies the caller's queries by the scale in place (models/base.py:77)"),
    ("finding.nan_in_padding", case("k=f32 hq=2 dk=8 data=tokens:124", "new A rows=2 pad=1,0", "append A 3",
                                    "attend A"),
     "a value vector of NaN in a padding column reaches the output: mx.fast.scaled_dot_product_attention multiplies it "
     "by the weight 0 of a masked column"),
]

TRACES = ([(name, text, "PASS", "") for block in (SINGLE, RING, QUANTIZED, BATCH, BATCH_RING, CHUNK)
           for name, text in block] + [(name, text, "FAIL", reason) for name, text, reason in FINDINGS])
