// Faults of what an operation carries from one state to the next.

#include <algorithm>

#include "tools/faults/cache_fault_rules.h"

namespace kvcheck::cache_fault {
namespace {

bool HasCodes(const ModelState& state) { return !IsPlain(state.k) || !IsPlain(state.v); }

int64_t LongestOffset(const ModelState& state) {
  int64_t longest = 0;
  for (const ModelRow& row : state.rows) longest = std::max(longest, row.offset);
  return longest;
}

}  // namespace

CacheRules TrimKeepsTokens() {
  CacheRules rules;
  rules.trim = [hits = rules.hits](const ModelState& before, ModelState* after) {
    if (!HasCodes(before) || LongestOffset(before) == LongestOffset(*after)) return;
    CopyState(before, after);
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules TrimRemovesOldest() {
  CacheRules rules;
  rules.trim = [hits = rules.hits](const ModelState& before, ModelState* after) {
    for (size_t b = 0; b < after->rows.size(); ++b) {
      const std::vector<StoredToken>& tokens = before.rows[b].tokens;
      ModelRow& row = after->rows[b];
      if (row.offset == 0 || tokens.size() == row.tokens.size()) continue;
      row.tokens.assign(tokens.end() - static_cast<std::ptrdiff_t>(row.tokens.size()),
                        tokens.end());
      hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules TrimLongestOnly() {
  CacheRules rules;
  rules.trim = [hits = rules.hits](const ModelState& before, ModelState* after) {
    const int64_t longest = LongestOffset(before);
    for (size_t b = 0; b < after->rows.size(); ++b) {
      if (before.rows[b].offset == longest || before.rows[b].offset == after->rows[b].offset) {
        continue;
      }
      after->rows[b] = before.rows[b];
      hits->fetch_add(1);
    }
    EndStep(after);
  };
  return rules;
}

// Positions start again at the oldest token that is still there.
CacheRules TrimRenumbers() {
  CacheRules rules;
  rules.trim = [hits = rules.hits](const ModelState&, ModelState* after) {
    for (ModelRow& row : after->rows) {
      if (row.retained.from <= row.retained.keep) continue;
      row.tokens.erase(row.tokens.begin() + static_cast<std::ptrdiff_t>(row.retained.keep),
                       row.tokens.begin() + static_cast<std::ptrdiff_t>(row.retained.from));
      row.offset = static_cast<int64_t>(row.tokens.size());
      row.retained = {row.retained.keep, 0, row.offset};
      hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules FilterKeepsPadding() {
  CacheRules rules;
  rules.filter = [hits = rules.hits](const ModelState& before, std::span<const int64_t>,
                                     ModelState* after) {
    for (size_t b = 0; b < std::min(before.rows.size(), after->rows.size()); ++b) {
      if (after->rows[b].unfed_padding == before.rows[b].unfed_padding) continue;
      after->rows[b].unfed_padding = before.rows[b].unfed_padding;
      hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules FilterMovesKeysOnly() {
  CacheRules rules;
  rules.filter = [hits = rules.hits](const ModelState& before, std::span<const int64_t>,
                                     ModelState* after) {
    for (size_t b = 0; b < std::min(before.rows.size(), after->rows.size()); ++b) {
      const std::vector<StoredToken>& old = before.rows[b].tokens;
      std::vector<StoredToken>& tokens = after->rows[b].tokens;
      for (size_t p = 0; p < std::min(old.size(), tokens.size()); ++p) {
        if (tokens[p].v == old[p].v || old[p].v < 0) continue;
        tokens[p].v = old[p].v;
        hits->fetch_add(1);
      }
    }
  };
  return rules;
}

CacheRules MergeSwapsValues() {
  CacheRules rules;
  rules.merge = [hits = rules.hits](std::span<const ModelState* const> operands,
                                    ModelState* after) {
    for (size_t b = 0; b < operands.size(); ++b) {
      const std::vector<StoredToken>& next = operands[(b + 1) % operands.size()]->rows[0].tokens;
      std::vector<StoredToken>& tokens = after->rows[b].tokens;
      for (size_t p = 0; p < std::min(next.size(), tokens.size()); ++p) {
        if (tokens[p].v == next[p].v || next[p].v < 0) continue;
        tokens[p].v = next[p].v;
        hits->fetch_add(1);
      }
    }
  };
  return rules;
}

// The write pointer of a ring is taken for its number of tokens.
CacheRules MergeOfWrappedRing() {
  CacheRules rules;
  rules.merge = [hits = rules.hits](std::span<const ModelState* const>, ModelState* after) {
    if (after->layout.kind != LayoutKind::kRing) return;
    for (ModelRow& row : after->rows) {
      if (row.offset <= after->layout.window) continue;
      const int64_t from = row.offset - row.offset % after->layout.window;
      if (from <= row.retained.from) continue;
      row.retained.from = from;
      hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules MergeSkipsEmpty() {
  CacheRules rules;
  rules.merge = [hits = rules.hits](std::span<const ModelState* const>, ModelState* after) {
    size_t rows = 0;
    for (size_t b = 0; b < after->rows.size(); ++b) {
      if (after->rows[b].offset == 0) continue;
      if (rows != b) after->rows[rows] = after->rows[b];
      ++rows;
    }
    if (rows == after->rows.size()) return;
    after->rows.Resize(rows);
    hits->fetch_add(1);
  };
  return rules;
}

// Every row gets the offset of the longest, and what stands in its padding counts as tokens.
CacheRules MergeAlignsToLongest() {
  CacheRules rules;
  rules.merge = [hits = rules.hits](std::span<const ModelState* const>, ModelState* after) {
    size_t longest = 0;
    for (size_t b = 0; b < after->rows.size(); ++b) {
      if (after->rows[b].offset > after->rows[longest].offset) longest = b;
    }
    if (after->rows.size() == 0 || after->rows[longest].retained.from > 0) return;
    const std::vector<StoredToken> tokens = after->rows[longest].tokens;
    for (ModelRow& row : after->rows) {
      const std::ptrdiff_t missing = std::ssize(tokens) - std::ssize(row.tokens);
      if (missing == 0) continue;
      row.tokens.insert(row.tokens.begin(), tokens.begin(), tokens.begin() + missing);
      if (row.retained.from > 0) row.retained.from += missing;
      row.offset = std::ssize(row.tokens);
      row.retained.end = row.offset;
      hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules ExtendDropsEmpty() {
  CacheRules rules;
  rules.extend = [hits = rules.hits](const ModelState& before, const ModelState& other,
                                     ModelState* after) {
    if (!IsEmpty(other) || other.rows.size() == 0) return;
    CopyState(before, after);
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules ExtractWithTail() {
  CacheRules rules;
  rules.extract = [hits = rules.hits](const ModelState&, int64_t, ModelState* after) {
    after->no_tail = false;
    if (after->rows[0].offset > 0) hits->fetch_add(1);
  };
  return rules;
}

CacheRules QuantizeDoesNothing() {
  CacheRules rules;
  rules.to_quantized = [hits = rules.hits](const ModelState& before, ModelState* after) {
    if (before.k == after->k && before.v == after->v) return;
    CopyState(before, after);
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules LoadLosesKeep() {
  CacheRules rules;
  rules.load = [hits = rules.hits](const ModelState&, ModelState* after) {
    if (after->layout.keep == 0) return;
    after->layout.keep = 0;
    hits->fetch_add(1);
  };
  return rules;
}

CacheRules LoadAsF32() {
  CacheRules rules;
  rules.load = [hits = rules.hits](const ModelState&, ModelState* after) {
    for (KvFormat* format : {&after->k, &after->v}) {
      if (!(*format == KvFormat(PlainFormat{DType::kBFloat16}))) continue;
      *format = PlainFormat{DType::kFloat32};
      hits->fetch_add(1);
    }
  };
  return rules;
}

// The format of most bits that differs in its bits alone.
KvFormat WidestAlike(const KvFormat& format) {
  KvFormat widest = format;
  for (const KvFormat& other : AllKvFormats()) {
    if (!GridOf(format) || !GridOf(other) || BlockOf(other) != BlockOf(format) ||
        RowDType(other) != RowDType(format) || PlaneNames(other) != PlaneNames(format)) {
      continue;
    }
    if (GridOf(other)->highest > GridOf(widest)->highest) widest = other;
  }
  return widest;
}

CacheRules LoadLosesBits() {
  CacheRules rules;
  rules.load = [hits = rules.hits](const ModelState&, ModelState* after) {
    for (KvFormat* format : {&after->k, &after->v}) {
      const KvFormat widest = WidestAlike(*format);
      if (widest == *format) continue;
      *format = widest;
      hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules LoadLosesOldest() {
  CacheRules rules;
  rules.load = [hits = rules.hits](const ModelState&, ModelState* after) {
    for (ModelRow& row : after->rows) {
      if (row.retained.from >= row.retained.end) continue;
      ++row.retained.from;
      hits->fetch_add(1);
    }
  };
  return rules;
}

CacheRules LoadLosesPadding() {
  CacheRules rules;
  rules.load = [hits = rules.hits](const ModelState&, ModelState* after) {
    for (ModelRow& row : after->rows) {
      if (row.unfed_padding == 0) continue;
      row.unfed_padding = 0;
      hits->fetch_add(1);
    }
  };
  return rules;
}

}  // namespace kvcheck::cache_fault
