#include "fuzz/draw_prefix.h"

#include <fmt/format.h>

#include "fuzz/prefix_draft.h"
#include "reference/spec/error.h"
#include "reference/spec/glob.h"

namespace kvcheck {
namespace {

// Formats that cases are stored in, which 32 channels suit and whose bounds tell contents apart.
constexpr std::string_view kFormats[] = {
    "f8e4m3fn",
    "affine:2:g32:f16",
    "affine:4:g32:f16",
    "affine:8:g32:f16",
    "affine:4:g32:f32",
    "affine:8:g32:f32",
    "affine:4:g32:bf16",
    "affine:8:g32:bf16",
    "q8_0",
    "q4_0",
    "q4_1",
};

}  // namespace

PrefixDrawer::PrefixDrawer(const PrefixDrawOptions& options) : options_(options) {
  const std::vector<Glob> globs = ParseGlobs(options.formats);
  std::vector<bool> used(globs.size(), false);
  for (const std::string_view text : kFormats) {
    bool is_chosen = globs.empty();
    for (size_t i = 0; i < globs.size(); ++i) {
      if (!globs[i].Matches(text)) continue;
      is_chosen = used[i] = true;
    }
    if (is_chosen) formats_.push_back(ParseKvFormat(WholeLine(text)));
  }
  for (size_t i = 0; i < globs.size(); ++i) {
    if (used[i]) continue;
    throw Error(ErrorCode::kUsage, fmt::format("no format matches '{}'", globs[i].text()),
                "--format");
  }
  if (options_.spaces.empty()) options_.spaces.emplace_back();
}

PrefixCase PrefixDrawer::Draw(uint64_t seed, uint64_t index) const {
  Generator random(seed, "prefix", index);
  const PrefixSpace& space = options_.spaces[index % options_.spaces.size()];
  std::vector<KvFormat> formats;
  const std::vector<Glob> globs = ParseGlobs(space.formats);
  for (const KvFormat& format : formats_) {
    if (globs.empty() || MatchesAny(globs, Print(format))) formats.push_back(format);
  }
  return PrefixDraft(space, formats, options_.max_operations, &random).Draw();
}

}  // namespace kvcheck
