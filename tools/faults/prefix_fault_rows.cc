// Faults of rows: how they are kept, restored, shown and shared; and of the files they come from.

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "reference/numerics/convert.h"
#include "tools/faults/prefix_fault_rules.h"

namespace kvcheck::prefix_fault {
namespace {

using RowsRule = std::function<void(const RowsOfTokens&)> PrefixRules::*;

// change: whether it made a difference.
template <typename F>
PrefixRules WithRows(RowsRule rule, const F& change) {
  PrefixRules rules;
  rules.*rule = [change, hits = rules.hits](const RowsOfTokens& rows) {
    const std::vector<std::byte> before(rows.bytes.begin(), rows.bytes.end());
    change(rows);
    if (!std::equal(before.begin(), before.end(), rows.bytes.begin())) hits->fetch_add(1);
  };
  return rules;
}

std::span<std::byte> Token(const RowsOfTokens& rows, int64_t token) {
  const auto bytes = static_cast<size_t>(rows.layout->TokenBytes());
  return rows.bytes.subspan(static_cast<size_t>(token) * bytes, bytes);
}

void Zero(std::span<std::byte> bytes) { std::fill(bytes.begin(), bytes.end(), std::byte{0}); }

void Swap(std::span<std::byte> a, std::span<std::byte> b) {
  std::swap_ranges(a.begin(), a.begin() + std::ssize(a), b.begin());
}

constexpr TokenPart kParts[] = {TokenPart::kKey, TokenPart::kValue};

// Calls f(token, layer, head).
template <typename F>
void ForEachVector(const RowsOfTokens& rows, F f) {
  for (int64_t token = 0; token < rows.tokens; ++token) {
    for (int64_t layer = 0; layer < rows.layout->layers; ++layer) {
      for (int64_t head = 0; head < rows.layout->heads; ++head) f(token, layer, head);
    }
  }
}

// The order of tokens is that of the next one.
void Rotate(const RowsOfTokens& rows) {
  for (int64_t token = 1; token < rows.tokens; ++token) {
    Swap(Token(rows, token - 1), Token(rows, token));
  }
}

PrefixRules Accepting(std::initializer_list<FileFault> faults) {
  PrefixRules rules;
  rules.accepts = [faults = std::vector<FileFault>(faults), hits = rules.hits](FileFault fault,
                                                                               bool* accepts) {
    if (std::find(faults.begin(), faults.end(), fault) == faults.end()) return;
    *accepts = true;
    hits->fetch_add(1);
  };
  return rules;
}

}  // namespace

PrefixRules FirstTokenAloneRestored() {
  return WithRows(&PrefixRules::restored, [](const RowsOfTokens& rows) {
    for (int64_t token = 0; token < rows.tokens; ++token) {
      if (rows.first + token > 0) Zero(Token(rows, token));
    }
  });
}
PrefixRules KAndVSwapped() {
  return WithRows(&PrefixRules::restored, [](const RowsOfTokens& rows) {
    if (rows.layout->k_bytes != rows.layout->v_bytes) return;
    ForEachVector(rows, [&](int64_t token, int64_t layer, int64_t head) {
      Swap(rows.Vector(token, layer, head, TokenPart::kKey),
           rows.Vector(token, layer, head, TokenPart::kValue));
    });
  });
}
PrefixRules HeadsSwapped() {
  return WithRows(&PrefixRules::restored, [](const RowsOfTokens& rows) {
    if (rows.layout->heads != 2) return;
    ForEachVector(rows, [&](int64_t token, int64_t layer, int64_t head) {
      if (head != 0) return;
      for (const TokenPart part : kParts) {
        Swap(rows.Vector(token, layer, 0, part), rows.Vector(token, layer, 1, part));
      }
    });
  });
}
PrefixRules LayersSwapped() {
  return WithRows(&PrefixRules::restored, [](const RowsOfTokens& rows) {
    if (rows.layout->layers < 2) return;
    ForEachVector(rows, [&](int64_t token, int64_t layer, int64_t head) {
      if (layer != 0) return;
      for (const TokenPart part : kParts) {
        Swap(rows.Vector(token, 0, head, part), rows.Vector(token, 1, head, part));
      }
    });
  });
}
PrefixRules LastLayerNotRestored() {
  return WithRows(&PrefixRules::restored, [](const RowsOfTokens& rows) {
    ForEachVector(rows, [&](int64_t token, int64_t layer, int64_t head) {
      if (layer + 1 != rows.layout->layers) return;
      for (const TokenPart part : kParts) Zero(rows.Vector(token, layer, head, part));
    });
  });
}
PrefixRules PositionsShifted() { return WithRows(&PrefixRules::restored, Rotate); }
PrefixRules ScalesLost() {
  return WithRows(&PrefixRules::restored, [](const RowsOfTokens& rows) {
    // The lowest bit of the exponent: twice or half the value.
    ForEachVector(rows, [&](int64_t token, int64_t layer, int64_t head) {
      const std::span<std::byte> v = rows.Vector(token, layer, head, TokenPart::kValue);
      const size_t size = SizeInBytes(rows.layout->dtype);
      const bool is_half = rows.layout->dtype == DType::kFloat16;
      for (size_t at = size; at <= v.size(); at += size) {
        if (is_half) {
          v[at - 1] ^= std::byte{0x04};
        } else {
          v[at - 2] ^= std::byte{0x80};
        }
      }
    });
  });
}
PrefixRules ScalesStale() {
  // Of the block restored before it in the prompt, the largest magnitude of each vector of V.
  const auto before = std::make_shared<std::vector<double>>();
  return WithRows(&PrefixRules::restored, [before](const RowsOfTokens& rows) {
    if (rows.first == 0) before->clear();
    const DType type = rows.layout->dtype;
    std::vector<double> scales;
    ForEachVector(rows, [&](int64_t token, int64_t layer, int64_t head) {
      const std::span<std::byte> v = rows.Vector(token, layer, head, TokenPart::kValue);
      std::vector<double> values(v.size() / SizeInBytes(type));
      DecodeBytes(v.data(), type, values);
      double scale = 0;
      for (const double value : values) scale = std::max(scale, std::abs(value));
      const size_t at = scales.size();
      scales.push_back(scale);
      if (at >= before->size() || scale == 0) return;
      for (double& value : values) value *= (*before)[at] / scale;
      EncodeFrom(values, type, v.data());
    });
    *before = std::move(scales);
  });
}
PrefixRules KeptInOtherOrder() { return WithRows(&PrefixRules::stored, Rotate); }
PrefixRules HitInOtherOrder() {
  return WithRows(&PrefixRules::shown, [](const RowsOfTokens& rows) {
    if (rows.tokens > 1) Swap(Token(rows, 0), Token(rows, rows.tokens - 1));
  });
}
PrefixRules ForkLosesTail() {
  return WithRows(&PrefixRules::forked, [](const RowsOfTokens& rows) {
    if (rows.tokens > 0) Zero(Token(rows, rows.tokens - 1));
  });
}

PrefixRules OtherFileRead() {
  PrefixRules rules = Accepting({FileFault::kKey});
  // Two keys share a file; the first writer's stays.
  rules.file_name = [](int64_t key, int64_t* name) { *name = (key + 1) / 2; };
  return rules;
}
PrefixRules CutFileServed() { return Accepting({FileFault::kCut}); }
PrefixRules FlipServed() { return Accepting({FileFault::kHash}); }
PrefixRules ForeignFileServed() { return Accepting({FileFault::kForeign}); }
PrefixRules OtherSetupServed() { return Accepting({FileFault::kSetup}); }
PrefixRules FirstBlockAloneWritten() {
  PrefixRules rules;
  rules.writes_block = [hits = rules.hits](int64_t index, int64_t, bool* does) {
    if (index == 0 || !*does) return;
    *does = false;
    hits->fetch_add(1);
  };
  return rules;
}

PrefixRules OlderFilesRewritten() {
  PrefixRules rules;
  rules.writes_block = [hits = rules.hits](int64_t, int64_t, bool* does) {
    if (*does) return;
    *does = true;
    hits->fetch_add(1);
  };
  return rules;
}

}  // namespace kvcheck::prefix_fault
