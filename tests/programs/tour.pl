#!/usr/bin/perl
# Perl: signals, fork, pipes and children.
use strict;
use warnings;
$| = 1;
sub slurp { local $/; open(my $file, '<', $_[0]) or die "$_[0]: $!"; return <$file> }
sub say_library { print "libsoftmig: ", slurp("/proc/self/maps") =~ m{/libsoftmig\.so} ? "mapped" : "not mapped", "\n" }
say_library();
$SIG{USR1} = sub { print "signal\n" };
kill 'USR1', $$;
my $child = fork();
if ($child == 0) { say_library(); exit 5 }
waitpid($child, 0);
print "child: ", $? >> 8, "\n";
print "pipe: ", scalar(() = `/opt/programs/linked` =~ /^cuInit: 0$/mg), "\n";
print system('/opt/programs/maps'), "\n";
exec '/opt/programs/maps';
