#include "reference/prefix/name_row.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/numerics/convert.h"

namespace kvcheck {
namespace {

struct Place {
  int32_t node = -1;
  int64_t layer = 0;
  int64_t head = 0;
  TokenPart part = TokenPart::kKey;
};

char PartName(TokenPart part) { return part == TokenPart::kKey ? 'K' : 'V'; }

// The last tokens of a prefix: an equal block has equal ones.
bool EndsAlike(const Ledger& ledger, int32_t a, int32_t b) {
  return ledger.At(a).token == ledger.At(b).token && ledger.At(a).position == ledger.At(b).position;
}

bool IsPrefixOf(const Ledger& ledger, int32_t shorter, int32_t longer) {
  while (longer >= 0 && ledger.At(longer).position > ledger.At(shorter).position) {
    longer = ledger.At(longer).parent;
  }
  return longer == shorter;
}

HistoryFault KindOf(const WrongRow& wrong, const Place& place, const Ledger& ledger) {
  const PrefixNode& want = ledger.At(wrong.node);
  const PrefixNode& got = ledger.At(place.node);
  if (got.written >= wrong.opened && place.node != wrong.node) return HistoryFault::kWrittenLater;
  if (got.who != want.who) return HistoryFault::kOtherTenant;
  if (got.epoch != want.epoch) return HistoryFault::kOlderEpoch;
  if (place.node == wrong.node) {
    if (place.part != wrong.part) return HistoryFault::kKForV;
    if (place.layer == wrong.layer && place.head == wrong.head) return HistoryFault::kDamaged;
    return place.layer != wrong.layer ? HistoryFault::kOtherLayer : HistoryFault::kOtherHead;
  }
  if (place.part != wrong.part) return HistoryFault::kKForV;
  if (place.layer != wrong.layer) return HistoryFault::kOtherLayer;
  if (place.head != wrong.head) return HistoryFault::kOtherHead;
  if (EndsAlike(ledger, place.node, wrong.node)) return HistoryFault::kOtherPrefix;
  if (IsPrefixOf(ledger, place.node, wrong.node) || IsPrefixOf(ledger, wrong.node, place.node)) {
    return HistoryFault::kOtherPosition;
  }
  return HistoryFault::kStale;
}

bool IsUniform(const std::byte* vector, int64_t bytes, int64_t size) {
  for (int64_t at = size; at < bytes; at += size) {
    if (std::memcmp(vector, vector + at, static_cast<size_t>(size)) != 0) return false;
  }
  return true;
}

// Signs that agree in every channel that the vector has; the first 64 tell.
uint64_t SignMask(int64_t dim) { return dim >= 64 ? ~uint64_t{0} : (uint64_t{1} << dim) - 1; }

// Of a vector from contents with given signs: the sum of all differences.
class Distance {
 public:
  Distance(const std::byte* vector, DType dtype, int64_t dim)
      : dtype_(dtype),
        of_vector_(static_cast<size_t>(dim)),
        of_content_(of_vector_.size()),
        content_(of_vector_.size() * SizeInBytes(dtype)) {
    DecodeBytes(vector, dtype, of_vector_);
  }
  double To(uint64_t signs) {
    FillContent(signs, dtype_, std::ssize(of_content_), content_.data());
    DecodeBytes(content_.data(), dtype_, of_content_);
    double sum = 0;
    for (size_t c = 0; c < of_vector_.size(); ++c) sum += std::fabs(of_vector_[c] - of_content_[c]);
    return std::isnan(sum) ? std::numeric_limits<double>::infinity() : sum;
  }

 private:
  DType dtype_;
  std::vector<double> of_vector_;
  std::vector<double> of_content_;
  std::vector<std::byte> content_;
};

std::string PrefixText(const Ledger& ledger, int32_t node) {
  std::vector<int32_t> tokens;
  for (int32_t at = node; at >= 0 && tokens.size() < 9; at = ledger.At(at).parent) {
    tokens.push_back(ledger.At(at).token);
  }
  std::string text;
  const bool cut = tokens.size() == 9;
  for (size_t i = cut ? 8 : tokens.size(); i > 0; --i) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", tokens[i - 1]);
  }
  return (cut ? "..." : "") + text;
}

}  // namespace

NamedRow NameRow(const WrongRow& wrong, const Ledger& ledger) {
  const RowLayout& layout = ledger.layout();
  const int64_t dim = layout.Dim(wrong.part);
  const int64_t bytes = layout.VectorBytes(wrong.part);
  const auto size = static_cast<int64_t>(SizeInBytes(layout.dtype));
  const PrefixNode& want = ledger.At(wrong.node);
  const std::string where =
      fmt::format("{} of layer {}, head {}, position {}", PartName(wrong.part), wrong.layer,
                  wrong.head, want.position);
  if (IsUniform(wrong.got, bytes, size) && dim > 1) {
    return {HistoryFault::kUnwritten,
            fmt::format("{} has one value in every channel: nobody wrote it", where)};
  }
  const uint64_t mask = SignMask(dim);
  const uint64_t signs = SignsIn(wrong.got, layout.dtype, dim) & mask;
  Distance distance(wrong.got, layout.dtype, dim);
  std::optional<Place> found;
  // In few channels signs agree by chance, so what is nearest counts first.
  std::pair<double, HistoryFault> best;
  for (int32_t node = 0; node < std::ssize(ledger.nodes()); ++node) {
    for (int64_t layer = 0; layer < layout.layers; ++layer) {
      for (int64_t head = 0; head < layout.heads; ++head) {
        for (const TokenPart part : {TokenPart::kKey, TokenPart::kValue}) {
          const uint64_t its_signs = SignsOf(ledger.At(node).digest, layer, head, part);
          if ((its_signs & mask) != signs) continue;
          const Place place = {node, layer, head, part};
          const std::pair its = {distance.To(its_signs), KindOf(wrong, place, ledger)};
          if (found && its >= best) continue;  // of two that fit, the first of section 6
          found = place;
          best = its;
        }
      }
    }
  }
  if (!found) {
    return {HistoryFault::kDamaged, fmt::format("{} has signs that nobody wrote", where)};
  }
  if (best.second == HistoryFault::kDamaged) {
    return {HistoryFault::kDamaged, fmt::format("{} has the right signs and other values", where)};
  }
  const PrefixNode& got = ledger.At(found->node);
  std::string text = fmt::format("{} is {} of layer {}, head {}, position {} of the prefix {}",
                                 where, PartName(found->part), found->layer, found->head,
                                 got.position, PrefixText(ledger, found->node));
  if (got.who != want.who) {
    text += fmt::format(" of {}, not of {}", Print(ledger.IdentityAt(got.who)),
                        Print(ledger.IdentityAt(want.who)));
  }
  if (got.epoch != want.epoch) {
    text += fmt::format(", of epoch {} and not {}", got.epoch, want.epoch);
  }
  if (got.written >= 0) {
    text += fmt::format(", written by operation {}", got.written + 1);
  }
  return {best.second,
          text + fmt::format("; wanted the prefix {}", PrefixText(ledger, wrong.node))};
}

}  // namespace kvcheck
