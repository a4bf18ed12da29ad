#include "reference/spec/rotated_format.h"

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "reference/spec/format_families.h"

namespace kvcheck {
namespace {

constexpr int64_t kLargestRotation = 512;

bool CanStoreRotated(const UnrotatedFormat& format) {
  return std::visit([](const auto& family) { return family.MayBeRotated(); }, format);
}

}  // namespace

std::optional<RotatedFormat> RotatedFormat::Parse(Piece piece, const std::vector<Piece>& parts,
                                                  bool* has_row_type) {
  if (parts[0].text != Names()) return std::nullopt;
  if (parts.size() < 3) {
    piece.Refuse("a rotated format is written " + std::string(Grammar()) + ", as hadamard:64:q4_0");
  }
  RotatedFormat format;
  format.size = ParseInt(parts[1], 0, int64_t{1} << 20);
  if (format.size < 2 || format.size > kLargestRotation || (format.size & (format.size - 1)) != 0) {
    parts[1].Refuse("the size of a rotation is a power of two, 2 to 512");
  }
  const auto begin = static_cast<size_t>(parts[2].text.data() - piece.text.data());
  const Piece rest = {piece.text.substr(begin), piece.whole};
  if (parts[2].text == Names()) parts[2].Refuse("a row is rotated once");
  const std::vector<Piece> of_rest(parts.begin() + 2, parts.end());
  const auto stored = ParseFamilies<UnrotatedFormat>(rest, of_rest, has_row_type);
  if (!stored) {
    rest.Refuse("'" + std::string(rest.text) +
                "' is not a format; formats: " + GrammarsOf<UnrotatedFormat>());
  }
  format.stored = *stored;
  // Where the text leaves the row type to its reader, f32 stands in for it.
  if ((has_row_type == nullptr || *has_row_type) && !CanStoreRotated(format.stored)) {
    rest.Refuse("rows of " + std::string(rest.text) +
                " cannot be rotated: formats with codes can, affine ones of f16 and bf16, nvfp4 "
                "without a global scale");
  }
  return format;
}

std::vector<RotatedFormat> RotatedFormat::All() {
  std::vector<RotatedFormat> all;
  for (const UnrotatedFormat& stored : AllOf<UnrotatedFormat>()) {
    RotatedFormat format;
    format.stored = stored;
    if (!CanStoreRotated(stored) || format.Block() != format.size) continue;
    // Of each kind one: the last with the largest groups, which has bf16 rows where there are such.
    const auto same = std::find_if(all.begin(), all.end(), [&](const RotatedFormat& other) {
      return other.Kind() == format.Kind();
    });
    if (same == all.end()) {
      all.push_back(format);
    } else {
      *same = format;
    }
  }
  return all;
}

bool RotatedFormat::Exists() const {
  return size >= 2 && size <= kLargestRotation && (size & (size - 1)) == 0 &&
         CanStoreRotated(stored) &&
         std::visit([](const auto& family) { return family.Exists(); }, stored);
}

int64_t RotatedFormat::Heads() const {
  return std::visit(
      [](const auto& family) -> int64_t {
        if constexpr (requires { family.Heads(); }) {
          return family.Heads();
        } else {
          return 1;
        }
      },
      stored);
}

RotatedFormat RotatedFormat::OfHead(int64_t head) const {
  RotatedFormat of_head = *this;
  std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.OfHead(head); }) of_head.stored = family.OfHead(head);
      },
      stored);
  return of_head;
}

std::string RotatedFormat::Text() const {
  return "hadamard:" + std::to_string(size) + ":" +
         std::visit([](const auto& family) { return family.Text(); }, stored);
}

std::string RotatedFormat::Kind() const {
  return "hadamard:" + std::visit([](const auto& family) { return family.Kind(); }, stored);
}

int64_t RotatedFormat::Block() const {
  return std::lcm(size, std::visit([](const auto& family) { return family.Block(); }, stored));
}

DType RotatedFormat::RowType() const {
  return std::visit([](const auto& family) { return family.RowType(); }, stored);
}

DType RotatedFormat::RangeType() const {
  // A rotated element is up to sqrt(size) times the largest of its block: below 2^5 times.
  const DType range = std::visit([](const auto& family) { return family.RangeType(); }, stored);
  return range == DType::kFloat16 || SizeInBytes(range) == 1 ? DType::kFloat8E4M3FN
                                                             : DType::kFloat16;
}

RotatedFormat RotatedFormat::WithRowType(DType type) const {
  RotatedFormat other = *this;
  std::visit([&](const auto& family) { other.stored = family.WithRowType(type); }, stored);
  return other;
}

Planes RotatedFormat::PlanesOf(int64_t head_dim) const {
  return std::visit([&](const auto& family) { return family.PlanesOf(head_dim); }, stored);
}

bool RotatedFormat::Leaves(CodecChoice choice) const {
  return std::visit([&](const auto& family) { return family.Leaves(choice); }, stored);
}

int64_t RotatedFormat::Rank() const {
  return 1000 + std::visit([](const auto& family) { return family.Rank(); }, stored);
}

std::vector<RotatedFormat> RotatedFormat::Simpler() const {
  std::vector<RotatedFormat> simpler;
  const auto add = [&](int64_t other_size, const UnrotatedFormat& other) {
    RotatedFormat format;
    format.size = other_size;
    format.stored = other;
    if (format.Exists()) simpler.push_back(format);
  };
  std::visit(
      [&](const auto& family) {
        for (const auto& other : family.Simpler()) add(size, other);
      },
      stored);
  if (size > 2) add(size / 2, stored);
  return simpler;
}

}  // namespace kvcheck
