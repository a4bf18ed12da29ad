// kvcheck serve: an implementation of this program behind the process protocol, as the child of
// another kvcheck: for tests of the protocol, and as an example of its other side.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <set>

#include "reference/spec/error.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/corridor/registry.h"
#include "tools/kvcheck/commands.h"
#include "tools/process/serve.h"

namespace kvcheck {
namespace {

// Nobody, where the name is of another kind or of nobody: *why says what names there are.
template <typename Make>
auto MakeNamed(Make make, std::string* why) -> decltype(make()) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUsage && error.code() != ErrorCode::kParse) throw;
    *why = error.message();
    return nullptr;
  }
}

int RunServe(const std::string& name) {
  Served served;
  Greeting& greeting = served.greeting;
  greeting.name = name;
  greeting.plan = ParsePlan(kStrangerPlan);
  std::string why;
  served.caches = MakeNamed([&] { return MakeCacheFactory(name); }, &why);
  if (served.caches != nullptr) {
    const CacheCapabilities capabilities = served.caches->GetCapabilities();
    greeting.version = capabilities.version;
    greeting.kinds.emplace_back(Name(CaseKind::kCache));
    greeting.cache_profile = capabilities.cache_profile;
    greeting.profile = capabilities.profile;
    greeting.plan_text = Print(capabilities.plan);
  }
  served.prefixes = MakeNamed([&] { return MakePrefixImplementation(name); }, &why);
  if (served.prefixes != nullptr) {
    const PrefixCapabilities capabilities = served.prefixes->GetCapabilities();
    greeting.version = capabilities.version;
    greeting.kinds.emplace_back(Name(CaseKind::kPrefix));
    greeting.prefix_profile = capabilities.prefix_profile;
    if (served.caches == nullptr) greeting.profile = capabilities.profile;
  }
  // Profiles that answers follow, where they are another one than the caches'.
  std::set<CaseKind> kinds;
  for (const CaseKind kind : {CaseKind::kAttention, CaseKind::kCodec}) {
    const auto implementation =
        MakeNamed([&] { return MakeImplementation(kind, name, greeting.plan, {}); }, &why);
    if (implementation == nullptr) continue;
    greeting.version = implementation->GetCapabilities().version;
    greeting.kinds.emplace_back(Name(kind));
    const StatedAnswer& stated = StatedBy(kind, name);
    if (!stated.plan.empty()) greeting.plan_text = stated.plan;
    if (served.caches == nullptr) {
      greeting.profile = stated.profile;
    } else if (!(stated.profile == greeting.profile)) {
      served.case_profile = stated.profile;
    }
    // One greeting states the profile of caches, codecs and attention, and what is asked may be
    // that: an implementation that decodes in one way alone does so, and its answer says it.
    kinds.insert(kind);
    served.make = [name, kinds](const Case& c, const Plan& plan,
                                const Profile& asked) -> std::unique_ptr<Implementation> {
      if (!kinds.contains(KindOf(c))) return nullptr;
      Profile profile = asked;
      const StatedAnswer& own = StatedBy(KindOf(c), name);
      const bool states = !own.plan.empty() || !(own.profile == Profile{});
      if (states) profile.decode = own.profile.decode;
      return MakeImplementation(KindOf(c), name, plan, profile);
    };
  }
  if (greeting.kinds.empty()) throw Error(ErrorCode::kUsage, why, "--impl");
  signal(SIGPIPE, SIG_IGN);
  // Whoever serves has nothing to finish or to report.
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  if (signal(SIGHUP, SIG_DFL) == SIG_IGN) signal(SIGHUP, SIG_IGN);
  return Serve(std::move(served), STDIN_FILENO, STDOUT_FILENO);
}

}  // namespace

void AddServeCommand(CLI::App* app, ChosenCommand* chosen) {
  auto name = std::make_shared<std::string>(DefaultImplementation(CaseKind::kCache));
  CLI::App* command = app->add_subcommand(
      "serve", "Answer over standard input and output, as the child of another kvcheck");
  command->footer(
      "Example: kvcheck fuzz --impl 'kvcheck serve --impl model'\n"
      "The protocol is tools/process/protocol.md.");
  command->add_option("--impl", *name, "Who answers: " + ImplementationsHelp())
      ->type_name("NAME")
      ->capture_default_str();
  command->callback([=] { *chosen = [=] { return RunServe(*name); }; });
}

}  // namespace kvcheck
