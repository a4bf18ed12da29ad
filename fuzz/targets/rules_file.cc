// Whatever bytes arrive as what a user writes for `kvcheck compare`: a file of rules, a file of
// renames, a slice, a shard, a pattern. Each is refused with an Error that says why, or it can be
// used: rules decide about names, renames give paths, a pattern made of a path matches it.

#include "tools/compare/rules_file.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/error.h"
#include "reference/spec/glob.h"
#include "tools/compare/renames.h"
#include "tools/compare/selection.h"
#include "tools/compare/slice.h"

namespace kvcheck {
namespace {

const std::vector<std::string> kNames = {"/layers.0.keys", "/layers/12/v", "/x"};

template <typename Use>
void Try(Use use) {
  try {
    use();
  } catch (const Error& error) {
    KVCHECK_CHECK(!error.message().empty(), "a refusal without a reason");
  }
}

void UseRules(std::string_view text, const std::string& default_rule) {
  TensorRule rule;
  rule.tolerance = ParseToleranceRule(WholeLine(default_rule));
  rule.where = "--tol";
  RuleSet rules(rule);
  rules.AddFile(text, "f");
  for (const std::string& name : kNames) {
    Try([&] {
      const TensorRule& decides = rules.Of(name);
      KVCHECK_CHECK(ParseToleranceRule(WholeLine(Print(decides.tolerance))) == decides.tolerance,
                    "the print of a rule parses to another rule");
      rules.Replaced(name);
    });
  }
  Try([&] { rules.CheckUsed(kNames); });
}

void UseRenames(std::string_view text) {
  Renames renames;
  renames.AddFile(text, "f");
  for (const auto& [path, name] : renames.Apply(kNames)) {
    KVCHECK_CHECK(path.starts_with('/') && name.starts_with('/'), "a name that is no path");
  }
}

void UseSlice(const std::string& text) {
  const Shape whole = {{"B", 2}, {"Hkv", 3}, {"T", 17}, {"", 5}};
  const Shape part = SliceShape(whole, ParseSlice(text), "x");
  for (size_t a = 0; a < whole.axes.size(); ++a) {
    KVCHECK_CHECK(part.axes[a].extent >= 1 && part.axes[a].extent <= whole.axes[a].extent,
                  "a part that is not inside");
  }
}

}  // namespace
}  // namespace kvcheck

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvcheck;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* rule : {"exact", "codec:affine:4:g64"}) Try([&] { UseRules(text, rule); });
  Try([&] { UseRenames(text); });
  Try([&] { UseSlice(text); });
  Try([&] {
    const Shard shard = ParseShard(text);
    KVCHECK_CHECK(1 <= shard.index && shard.index <= shard.count, "a part that does not exist");
  });
  Try([&] {
    const Glob glob(text);
    for (const std::string& name : kNames) glob.Matches(name);
  });
  Try([&] {
    KVCHECK_CHECK(Glob(Glob::Of("/" + text)).Matches("/" + text), "a path that its pattern misses");
  });
  return 0;
}
