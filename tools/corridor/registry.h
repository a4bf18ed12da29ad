// The implementations that --impl can name: one row each, of which help, `kvcheck list`, messages
// about unknown names and defaults are made. Those of this program are rows of implementations.cc;
// whoever links this library adds his own (RegisterImplementation); processes of their own, an
// adapter's name or a command line (adapters.h), are the row that fits whatever no other does.

#ifndef TOOLS_CORRIDOR_REGISTRY_H_
#define TOOLS_CORRIDOR_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "reference/spec/case_kind.h"
#include "reference/spec/implementation.h"
#include "reference/spec/prefix_implementation.h"
#include "tools/process/remote_process.h"

namespace kvcheck {

struct MakeRequest {
  CaseKind kind = CaseKind::kCache;  // of the cases that it will be asked
  std::string name;                  // as --impl has it
  std::string parameter;             // the text after a name that takes one
  // Of implementations of tensors: what their answers are judged under.
  Plan plan{};
  Profile profile{};
  RemoteLimits limits{};  // of a process of its own
};

using MakeCases = std::function<std::unique_ptr<Implementation>(const MakeRequest&)>;
using MakeCaches = std::function<std::unique_ptr<CacheFactory>(const MakeRequest&)>;
using MakePrefixes = std::function<std::unique_ptr<PrefixImplementation>(const MakeRequest&)>;
// Empty: it has no cases of the kind.
using Maker = std::variant<std::monostate, MakeCases, MakeCaches, MakePrefixes>;

struct ImplementationRow {
  std::string name;         // "optimized"; with a parameter, what stands before it: "fault:"
  std::string parameter{};  // "PLAN", "ID"; "": none
  std::string help{};       // what it is, after the name
  // What it cannot find faults of, because it would be judged by itself; "": it is another one.
  std::string checks_itself{};
  // Errors of a maker: kUsage for a parameter that names nothing, or caches that a process has not;
  // kParse; kUnsupported for a process that does not greet.
  KindTable<Maker> make{};

  bool Has(CaseKind kind) const { return make[kind].index() != 0; }
  std::string Shown() const { return name + parameter; }  // "fault:ID"
};

// Of this program, and what was registered.
const std::vector<ImplementationRow>& ImplementationRows();
// Precondition: the name is new.
void RegisterImplementation(ImplementationRow row);
void RegisterCacheImplementation(const std::string& name,
                                 std::function<std::unique_ptr<CacheFactory>()> make);
void RegisterPrefixImplementation(const std::string& name,
                                  std::function<std::unique_ptr<PrefixImplementation>()> make);
// The row that a name means, a process of its own among them; null: none.
const ImplementationRow* FindImplementation(const std::string& name);
// Whether it is a name of this program, whatever follows it: no command line is looked for in it.
bool IsOfThisProgram(const std::string& name);

// Who answers cases of the kind where nobody is named: the first row that has it, which is never
// one whose values judge it. Errors: kUsage where nobody does.
std::string DefaultImplementation(CaseKind kind);

// Errors: kUsage, with what the name is and which names the kind has.
[[noreturn]] void RefuseImplementation(CaseKind kind, const std::string& name);

// name "": the default. Whoever answers tensors of other kinds alone declines, as his capabilities
// say. Errors: as RefuseImplementation, for a name that means nobody; those of the maker.
std::unique_ptr<Implementation> MakeImplementation(CaseKind kind, const std::string& name,
                                                   const Plan& plan, const Profile& profile,
                                                   const RemoteLimits& limits = {});
std::unique_ptr<CacheFactory> MakeCacheFactory(const std::string& name,
                                               const RemoteLimits& limits = {});
std::unique_ptr<PrefixImplementation> MakePrefixImplementation(const std::string& name,
                                                               const RemoteLimits& limits = {});

// How it says that it computes, where it says so: for whoever asks without naming a plan or a
// profile.
struct StatedAnswer {
  std::string plan;  // "": whatever the case is judged under
  Profile profile;
};
// Asked once; nothing of a kind without plans. Errors: as MakeImplementation.
const StatedAnswer& StatedBy(CaseKind kind, const std::string& name,
                             const RemoteLimits& limits = {});

// "optimized, model, fault:ID": of one kind.
std::string ImplementationNames(CaseKind kind);
// For --help: "optimized: kvcheck's own; ...", of those that have one of the kinds; with what
// stands for a process of its own.
std::string ImplementationsHelp();

}  // namespace kvcheck

#endif  // TOOLS_CORRIDOR_REGISTRY_H_
