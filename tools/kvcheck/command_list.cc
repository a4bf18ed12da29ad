// kvcheck list: what this build can judge, and the plans that it knows by name.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reference/data/attention_regime.h"
#include "reference/data/row_regime.h"
#include "reference/spec/known_plans.h"
#include "reference/spec/kv_format.h"
#include "tools/campaign/cache_coverage.h"
#include "tools/corridor/adapters.h"
#include "tools/corridor/registry.h"
#include "tools/kvcheck/commands.h"
#include "tools/kvcheck/interrupt.h"
#include "tools/report/summary.h"
#include "tools/report/tool_version.h"

namespace kvcheck {
namespace {

constexpr size_t kWidth = 100;

// A family in as many lines as it needs, its name in the first.
std::string FamilyText(const std::string& family, const std::vector<std::string>& formats) {
  std::string text, line = fmt::format("  {:<12}", family);
  for (const std::string& format : formats) {
    if (line.size() + 1 + format.size() > kWidth) {
      text += line + "\n";
      line = std::string(14, ' ');
    }
    line += " " + format;
  }
  return text + line + "\n";
}

std::string FormatsText() {
  std::vector<std::string> families;  // in the order of their first format
  std::map<std::string, std::vector<std::string>> formats;
  for (const KvFormat& format : ListedKvFormats()) {
    const std::string text = Print(format);
    const std::string family = IsPlain(format) ? "plain" : text.substr(0, text.find(':'));
    if (formats[family].empty()) families.push_back(family);
    formats[family].push_back(text);
  }
  std::string all;
  for (const std::string& family : families) all += FamilyText(family, formats[family]);
  return all;
}

std::vector<std::string> OperationNames() {
  std::vector<std::string> names;
  for (const CacheOpKind op : CoveredOperations()) names.emplace_back(Name(op));
  return names;
}

std::string ListText() {
  std::string text = ToolVersion() + "\n\n";
  text +=
      "kinds of cases\n"
      "  attention  out = softmax(softcap(scale q.k) + bias) v, and lse, over stored or original K "
      "and V\n"
      "  codec      rows of one storage format: encode, decode (bytes), round_trip (bound)\n"
      "  tensor     two stored tensors under a rule: exact, ulp:N, abs:X, rel:Y, abs:X,rel:Y\n"
      "  cache      a trace of operations on caches: visible tokens, stored bytes, numbers\n"
      "  prefix     a history of requests of a server: rows of hits, what is kept and "
      "forgotten\n\n";
  text += "storage formats (K and V may differ)\n" + FormatsText() + "\n";
  text +=
      "layouts\n"
      "  dense      q (B,Hq,L,Dk), k (B,Hkv,T,Dk), v (B,Hkv,T,Dv); pages and packed sequences: "
      "kvcheck.judge_attention\n"
      "  of caches  linear, linear:w=W, ring:w=W:keep=K, chunk:c=C\n\n"
      "masks, joined by '+'\n"
      "  none, causal_bottom_right, causal_top_left, window:W, left_pad:P0,P1,..., bool:AXES,\n"
      "  additive:AXES:TYPE with AXES one of T LT B1LT BHLT B11T; also softcap, sinks, alibi, "
      "gqa\n\n";
  text += fmt::format(
      "operations of caches\n  {}\n  Which of them an implementation has, by layout: kvcheck list "
      "--caches {} (tens of thousands\n  of short traces are run: seconds)\n\n",
      fmt::join(OperationNames(), " "), DefaultImplementation(CaseKind::kCache));
  text += fmt::format("data of attention cases\n  {}\n", fmt::join(AttentionRegimes(), " "));
  text += fmt::format("data of codec cases\n  {}; codes (decoding alone)\n\n",
                      fmt::join(RowRegimes(), " "));
  text += "implementations\n";
  for (const CaseKind kind :
       {CaseKind::kAttention, CaseKind::kCodec, CaseKind::kCache, CaseKind::kPrefix}) {
    text += fmt::format("  {:<11}{}\n", Name(kind), ImplementationNames(kind));
  }
  text += "  the faults: kvcheck faults list\n";
  text += "  in processes of their own: " + AdaptersText() + "\n\n";
  text += "plans known by name (--plan NAME; their numbers: kvcheck plans NAME)\n";
  for (const KnownPlan& plan : KnownPlans()) {
    text += fmt::format("  {:<26}{}\n", plan.name, plan.kernel);
  }
  return text;
}

}  // namespace

void AddListCommand(CLI::App* app, ChosenCommand* chosen) {
  CLI::App* command = app->add_subcommand(
      "list", "Show what is covered: kinds, formats, layouts, masks, data and known plans");
  auto caches = std::make_shared<std::string>();
  command
      ->add_option("--caches", *caches,
                   "Only what this implementation of caches can do, each operation run: " +
                       ImplementationNames(CaseKind::kCache))
      ->type_name("NAME");
  command->callback([chosen, caches] {
    *chosen = [caches] {
      RemoteLimits limits;
      limits.on_wait = OnInterrupt();
      // Nothing is reported of a part of it.
      const InterruptWatch watch([] { _exit(kExitInterrupted); });
      std::cout << (caches->empty()
                        ? ListText()
                        : CoverageText(*caches,
                                       CoverageOf(MakeCacheFactory(*caches, limits).get())))
                << std::flush;
      return 0;
    };
  });
}

}  // namespace kvcheck
