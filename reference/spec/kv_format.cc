#include "reference/spec/kv_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/spec/error.h"
#include "reference/spec/format_families.h"
#include "reference/spec/near_name.h"

namespace kvcheck {
std::string Print(const KvFormat& format) {
  return std::visit([](const auto& family) { return family.Text(); }, format);
}

bool Exists(const KvFormat& format) {
  return std::visit([](const auto& family) { return family.Exists(); }, format);
}

KvFormat ParseKvFormat(Piece piece) { return ParseKvFormat(piece, nullptr); }

KvFormat ParseKvFormat(Piece piece, bool* has_row_type) {
  const std::vector<Piece> parts = Split(piece, ':');
  if (const auto parsed = ParseFamilies<KvFormat>(piece, parts, has_row_type)) return *parsed;
  std::string names;
  ForEachFamily<KvFormat>([&]<FormatFamily F>(const F*) {
    names += (names.empty() ? "" : ", ") + std::string(F::Names());
  });
  piece.Refuse(fmt::format("'{}' is not a format{}; formats: {}", piece.text,
                           DidYouMean(parts[0].text, names), GrammarsOf<KvFormat>()));
}

bool IsPlain(const KvFormat& format) {
  return std::visit(
      [](const auto& family) {
        return std::is_same_v<std::decay_t<decltype(family)>, PlainFormat>;
      },
      format);
}

std::string KindOf(const KvFormat& format) {
  return std::visit([](const auto& family) { return family.Kind(); }, format);
}

DType RowDType(const KvFormat& format) {
  return std::visit([](const auto& family) { return family.RowType(); }, format);
}

DType RangeDType(const KvFormat& format) {
  return std::visit([](const auto& family) { return family.RangeType(); }, format);
}

KvFormat WithRowType(const KvFormat& format, DType type) {
  return std::visit([&](const auto& family) { return KvFormat(family.WithRowType(type)); }, format);
}

int64_t BlockOf(const KvFormat& format) {
  return std::visit([](const auto& family) { return family.Block(); }, format);
}

int64_t HeadsOf(const KvFormat& format) {
  return std::visit(
      [](const auto& family) -> int64_t {
        if constexpr (requires { family.Heads(); }) {
          return family.Heads();
        } else {
          return 1;
        }
      },
      format);
}

KvFormat FormatOfHead(const KvFormat& format, int64_t head) {
  return std::visit(
      [&](const auto& family) -> KvFormat {
        if constexpr (requires { family.OfHead(head); }) {
          return family.OfHead(head);
        } else {
          return family;
        }
      },
      format);
}

void CheckHeads(const KvFormat& format, int64_t kv_heads, const std::string& context) {
  const int64_t heads = HeadsOf(format);
  if (heads == 1 || heads == kv_heads) return;
  throw Error(ErrorCode::kIllegalCase,
              fmt::format("{} names the scales of {} heads, and there are {} key/value heads",
                          Print(format), heads, kv_heads),
              context);
}

bool IsOfCachesAlone(const KvFormat& format) {
  return std::visit(
      []<typename F>(const F& family) {
        if constexpr (requires { family.Coded(); }) return family.Residual() > 0;
        return false;
      },
      format);
}

bool FitsHeadDim(const KvFormat& format, int64_t head_dim) {
  return head_dim % BlockOf(format) == 0 && !IsOfCachesAlone(format);
}

Planes PlanesOf(const KvFormat& format, int64_t head_dim) {
  return std::visit([&](const auto& family) { return family.PlanesOf(head_dim); }, format);
}

std::optional<CodeGrid> GridOf(const KvFormat& format) {
  return std::visit([](const auto& family) { return family.Grid(); }, format);
}

bool Leaves(const KvFormat& format, CodecChoice choice) {
  return std::visit([&](const auto& family) { return family.Leaves(choice); }, format);
}

int64_t RankOf(const KvFormat& format) {
  return std::visit([](const auto& family) { return family.Rank(); }, format);
}

std::vector<KvFormat> SimplerFormats(const KvFormat& format) {
  return std::visit(
      [](const auto& family) {
        const auto simpler = family.Simpler();
        return std::vector<KvFormat>(simpler.begin(), simpler.end());
      },
      format);
}

std::vector<std::string> PlaneNames(const KvFormat& format) {
  std::vector<std::string> names;
  for (const Plane& plane : PlanesOf(format, BlockOf(format))) names.emplace_back(plane.name);
  return names;
}

std::vector<std::string> AllPlaneNames() {
  std::vector<std::string> all;
  for (const KvFormat& format : AllOf<KvFormat>()) {
    for (std::string& name : PlaneNames(format)) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(std::move(name));
    }
  }
  return all;
}

std::string PlaneTensor(const KvFormat& format, const std::string& name, const Plane& plane) {
  return IsPlain(format) ? name : fmt::format("{}_{}", name, plane.name);
}

namespace {

// Of the same family and with as many parts to their names, the formats that keep such rows.
std::string FormatsThatFit(const KvFormat& format, int64_t head_dim) {
  constexpr size_t kMost = 3;
  const std::string own = Print(format);
  const std::string family = own.substr(0, own.find(':'));
  // Those that differ in the fewest characters first.
  std::vector<std::pair<size_t, std::string>> fitting;
  for (const KvFormat& other : ListedKvFormats()) {
    if (other.index() != format.index() || !FitsHeadDim(other, head_dim)) continue;
    const std::string text = Print(other);
    if (text.substr(0, text.find(':')) != family) continue;
    const size_t end = std::min(text.size(), own.size());
    size_t differ = std::max(text.size(), own.size()) - end;
    for (size_t i = 0; i < end; ++i) differ += text[i] == own[i] ? 0 : 1;
    fitting.emplace_back(differ, text);
  }
  std::sort(fitting.begin(), fitting.end());
  std::string text;
  for (size_t i = 0; i < std::min(kMost, fitting.size()); ++i) {
    text += (i == 0 ? "" : ", ") + fitting[i].second;
  }
  if (text.empty()) {
    text = fmt::format("no format of {} keeps rows of {} channels: take another, or a plain format",
                       family, head_dim);
  } else {
    text = fmt::format("of the same family these keep rows of {} channels: {}", head_dim, text);
  }
  if (own.find("swizzled") != std::string::npos) {
    text += fmt::format(
        "; a row of {} is four tokens of a head, one after the other: where {} channels are one "
        "head "
        "of a token, give them as (heads, tokens / 4, 4 x {})",
        own, head_dim, head_dim);
  }
  return text;
}

}  // namespace

void CheckHeadDim(const KvFormat& format, int64_t head_dim, const std::string& context) {
  if (!Exists(format)) {
    throw Error(ErrorCode::kIllegalCase, fmt::format("'{}' is not a format", Print(format)),
                context);
  }
  if (IsOfCachesAlone(format)) {
    throw Error(
        ErrorCode::kIllegalCase,
        fmt::format("{} is how a cache keeps the tokens of a row, the newest ones as vectors; "
                    "a row by itself has no newest one: ask with a cache case, or leave the "
                    "residual out",
                    Print(format)),
        context);
  }
  if (!FitsHeadDim(format, head_dim)) {
    throw Error(
        ErrorCode::kIllegalCase,
        fmt::format("head_dim {} is not a multiple of {}, the channels that {} keeps "
                    "together; {}",
                    head_dim, BlockOf(format), Print(format), FormatsThatFit(format, head_dim)),
        context);
  }
}

std::vector<KvFormat> ListedKvFormats() { return AllOf<KvFormat>(); }

std::vector<KvFormat> AllKvFormats() {
  std::vector<KvFormat> formats = AllOf<KvFormat>();
  std::erase_if(formats, IsOfCachesAlone);
  return formats;
}

std::vector<KvFormat> FormatsOfCachesAlone() {
  std::vector<KvFormat> formats = AllOf<KvFormat>();
  std::erase_if(formats, [](const KvFormat& format) { return !IsOfCachesAlone(format); });
  return formats;
}

}  // namespace kvcheck
