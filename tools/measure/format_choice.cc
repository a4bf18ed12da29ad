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
std::vector<KvFormat> MeasurableFormats(int64_t head_dim) {
  std::vector<KvFormat> formats = AllKvFormats();
  std::erase_if(formats, [&](const KvFormat& format) {
    return GroupsTokens(format) || !FitsHeadDim(format, head_dim) ||
           NeedsParameters(format, head_dim);
  });
  return formats;
}

std::vector<KvFormat> UsualFormats(int64_t head_dim) {
  std::vector<KvFormat> chosen;
  for (const KvFormat& format : MeasurableFormats(head_dim)) {
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

double BitsPerElement(const KvFormat& format, int64_t head_dim) {
  return 8 * static_cast<double>(PlanesOf(format, head_dim).RowBytes()) /
         static_cast<double>(head_dim);
}

bool NeedsParameters(const KvFormat& format, int64_t head_dim) {
  const Planes planes = PlanesOf(format, head_dim);
  return std::any_of(planes.begin(), planes.end(),
                     [](const Plane& plane) { return plane.scope == PlaneScope::kTensor; });
}

void CheckNeedsNoParameters(const KvFormat& format, int64_t head_dim) {
  if (!NeedsParameters(format, head_dim)) return;
  throw Error(ErrorCode::kUnsupported,
              "it has parameters that are data of a model, and none are given", Print(format));
}

std::vector<KvFormat> ChooseFormats(const std::vector<std::string>& asked, int64_t head_dim) {
  if (asked.empty()) return UsualFormats(head_dim);
  std::vector<KvFormat> chosen;
  for (const std::string& text : asked) {
    if (text.find_first_of("*?[") == std::string::npos) {
      const KvFormat format = ParseKvFormat(WholeLine(text));
      if (GroupsTokens(format)) {
        throw Error(ErrorCode::kUnsupported,
                    "it codes groups of tokens, and rows are measured one by one", text);
      }
      CheckHeadDim(format, head_dim, text);
      CheckNeedsNoParameters(format, head_dim);
      AddOnce(format, &chosen);
      continue;
    }
    bool found = false;
    for (const KvFormat& format : MeasurableFormats(head_dim)) {
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
