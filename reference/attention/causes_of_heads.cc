// Causes by which K, V or both are those of another head or batch row.

#include <set>

#include "reference/attention/causes.h"

namespace kvcheck {
namespace {

// K, V or both of another head, or of another batch row.
class OtherHeads {
 public:
  explicit OtherHeads(Causes* causes) : causes_(*causes), problem_(causes->problem()) {}

  void Run() {
    const AttentionCase& c = causes_.c();
    if (c.kv_heads > 1) {
      const int64_t heads = c.kv_heads;
      AddHead("h mod Hkv in place of h / (Hq / Hkv)",
              [heads](const SeenRow& row) { return row.query.query_head % heads; });
      AddHead("the next one", [heads](const SeenRow& row) { return (row.kv_head + 1) % heads; });
      AddHead("the previous one",
              [heads](const SeenRow& row) { return (row.kv_head + heads - 1) % heads; });
      AddHead("head 0 for all", [](const SeenRow&) { return int64_t{0}; });
      AddHead("in reversed order", [heads](const SeenRow& row) { return heads - 1 - row.kv_head; });
    }
    if (c.batch > 1) {
      const int64_t batches = c.batch;
      AddBatch("the next one",
               [batches](const SeenRow& row) { return (row.query.batch + 1) % batches; });
      AddBatch("the previous one",
               [batches](const SeenRow& row) { return (row.query.batch + batches - 1) % batches; });
      AddBatch("batch row 0", [](const SeenRow&) { return int64_t{0}; });
    }
  }

 private:
  template <typename Head>
  void AddHead(const std::string& which, const Head& head) {
    Add("other key/value head", "another key/value head is read: " + which, true, true, head,
        [](const SeenRow& row) { return row.query.batch; });
    Add("wrong K head", "K alone is read from another key/value head: " + which, true, false, head,
        [](const SeenRow& row) { return row.query.batch; });
    Add("wrong V head", "V alone is read from another key/value head: " + which, false, true, head,
        [](const SeenRow& row) { return row.query.batch; });
  }

  template <typename Batch>
  void AddBatch(const std::string& which, const Batch& batch) {
    const auto own = [](const SeenRow& row) { return row.kv_head; };
    Add("keys of another batch row", "K and V are those of another batch row: " + which, true, true,
        own, batch);
    Add("keys of another batch row", "K alone is that of another batch row: " + which, true, false,
        own, batch);
    Add("keys of another batch row", "V alone is that of another batch row: " + which, false, true,
        own, batch);
  }

  template <typename Head, typename Batch>
  void Add(std::string name, std::string text, bool k, bool v, const Head& head,
           const Batch& batch) {
    std::vector<int64_t> read = {k ? 1 : 0, v ? 1 : 0};
    for (const SeenRow& row : causes_.rows()) {
      read.push_back(batch(row) * causes_.c().kv_heads + head(row));
    }
    if (!tried_.insert(std::move(read)).second) return;
    causes_.AddIfLikely({std::move(name), std::move(text), 0, 0, 16},
                        [&](const SeenRow& row, size_t) -> std::optional<Mixture> {
                          const int64_t of_batch = batch(row), of_head = head(row);
                          if (of_batch == row.query.batch && of_head == row.kv_head) {
                            return std::nullopt;
                          }
                          const auto other = problem_.asked.head(of_batch, of_head);
                          Rescored change;
                          if (k) change.k = &other->k.hi;
                          if (v) change.v = &other->v.hi;
                          return Rescore(problem_, row, change);
                        });
  }

  Causes& causes_;
  const SeenProblem& problem_;
  std::set<std::vector<int64_t>> tried_;  // what is read, and from where
};

}  // namespace

void AddCausesOfHeads(Causes* causes) { OtherHeads(causes).Run(); }

}  // namespace kvcheck
