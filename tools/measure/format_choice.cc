#include "tools/measure/format_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

constexpr int64_t kUsualBlock = 64;
constexpr double kMostBits = 32;

int64_t FromUsualBlock(const KvFormat& format) { return std::abs(BlockOf(format) - kUsualBlock); }

// What a pattern may mean.
std::vector<KvFormat> MeasurableFormats(int64_t head_dim, const HasGroups& has_groups) {
  std::vector<KvFormat> formats = AllKvFormats();
  std::erase_if(formats, [&](const KvFormat& format) {
    return !has_groups(TokenGroupOf(format)) ||
           !FitsHeadDim(format, StoredRowLength(format, head_dim)) ||
           NeedsParameters(format, head_dim);
  });
  return formats;
}

std::vector<KvFormat> UsualFormats(int64_t head_dim, const HasGroups& has_groups) {
  std::vector<KvFormat> chosen;
  for (const KvFormat& format : MeasurableFormats(head_dim, has_groups)) {
    if (BitsPerElement(format, head_dim) > kMostBits) continue;
    const auto like = std::find_if(chosen.begin(), chosen.end(), [&](const KvFormat& other) {
      return KindOf(other) == KindOf(format) && RowDType(other) == RowDType(format);
    });
    if (like == chosen.end()) {
      chosen.push_back(format);
    } else if (FromUsualBlock(format) < FromUsualBlock(*like)) {
      *like = format;
    }
  }
  return chosen;
}

void AddOnce(const KvFormat& format, std::vector<KvFormat>* chosen) {
  if (std::find(chosen->begin(), chosen->end(), format) == chosen->end()) {
    chosen->push_back(format);
  }
}

}  // namespace

int64_t StoredRowLength(const KvFormat& format, int64_t head_dim) {
  return TokenGroupOf(format) * head_dim;
}

double BitsPerElement(const KvFormat& format, int64_t head_dim) {
  const int64_t length = StoredRowLength(format, head_dim);
  return 8 * static_cast<double>(PlanesOf(format, length).RowBytes()) / static_cast<double>(length);
}

bool NeedsParameters(const KvFormat& format, int64_t head_dim) {
  const Planes planes = PlanesOf(format, StoredRowLength(format, head_dim));
  return std::any_of(planes.begin(), planes.end(),
                     [](const Plane& plane) { return plane.scope == PlaneScope::kTensor; });
}

void CheckNeedsNoParameters(const KvFormat& format, int64_t head_dim) {
  if (!NeedsParameters(format, head_dim)) return;
  throw Error(ErrorCode::kUnsupported,
              "it has parameters that are data of a model, and none are given", Print(format));
}

std::vector<KvFormat> ChooseFormats(const std::vector<std::string>& asked, int64_t head_dim,
                                    const HasGroups& has_groups) {
  if (asked.empty()) return UsualFormats(head_dim, has_groups);
  std::vector<KvFormat> chosen;
  for (const std::string& text : asked) {
    if (text.find_first_of("*?[") == std::string::npos) {
      const KvFormat format = ParseKvFormat(WholeLine(text));
      if (!has_groups(TokenGroupOf(format))) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("it codes groups of {} tokens, which the tokens measured here do "
                                "not make",
                                TokenGroupOf(format)),
                    text);
      }
      CheckHeadDim(format, StoredRowLength(format, head_dim), text);
      CheckNeedsNoParameters(format, head_dim);
      AddOnce(format, &chosen);
      continue;
    }
    bool found = false;
    for (const KvFormat& format : MeasurableFormats(head_dim, has_groups)) {
      if (!MatchesGlob(text, Print(format))) continue;
      AddOnce(format, &chosen);
      found = true;
    }
    if (!found) {
      throw Error(ErrorCode::kSelection,
                  fmt::format("no format whose rows can have {} channels is called so", head_dim),
                  text);
    }
  }
  return chosen;
}

}  // namespace kvcheck
